// Draws the figures of a report with BokehJS: what is in them, as marks.py describes it, is in the page, compressed.
// Rows of one table (samples) have one data source, so that what is selected in one figure is selected in all.
"use strict";
(async () => {
  const NARROW = 140, LEFT = 76, BARE = 12, RIGHT = 16, BAR = 70, SPARE = 16, FAINT = 0.07, MOST_IN_LEGEND = 40, MOST_NAMES = 200;
  const TRANSPARENT = "rgba(0, 0, 0, 0)", BEYOND = 1e30;
  const note = document.getElementById("needs-script");
  if (typeof DecompressionStream === "undefined") {
    note.textContent = "This browser is too old for the interactive figures: one picture of each kind is shown.";
    return;
  }

  const inflated = async (id) => {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };
  const element = (tag, attributes = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  };
  document.head.append(element("script", { textContent: new TextDecoder().decode(await inflated("library")) }));
  const B = window.Bokeh, { ndarray } = B.require("core/util/ndarray");

  B.require("core/logging").logger.set_level("error");
  // One document of all figures, since they share rows; the n-th root is drawn in the n-th of `homes`.
  const homes = [], all = new B.Document();
  await B.embed.add_document_standalone(all, document.body, homes);

  // What was packed: a length, JSON, and the numbers that it refers to.
  const packed = await inflated("figures"), length = new DataView(packed).getUint32(0, true);
  const numbers = packed.slice(4 + length);
  const KINDS = { f4: Float32Array, f8: Float64Array, i1: Int8Array, i2: Int16Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
  const unpacked = (value) => {
    if (Array.isArray(value)) return value.map(unpacked);
    if (value === null || typeof value !== "object") return value;
    if ("array" in value) {
      const [kind, at, count] = value.array, found = new KINDS[kind](numbers, at, count);
      if (!("unit" in value)) return Object.assign(found, { shape: value.shape });
      const none = -(2 ** (8 * found.BYTES_PER_ELEMENT - 1));
      const real = Float64Array.from(found, (one) => (one === none ? NaN : one * value.unit));
      return Object.assign(real, { shape: value.shape });
    }
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, unpacked(one)]));
  };
  const document_ = unpacked(JSON.parse(new TextDecoder().decode(new Uint8Array(packed, 4, length))));
  const { figures, tables: asked, color_maps: maps, colors: COLORS, shapes: SHAPES, ink: INK, no_value: NO_VALUE } = document_;

  const interpolated = (anchors, count) => {
    const parts = anchors.map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));
    return Array.from({ length: count }, (_, number) => {
      const at = (number / (count - 1)) * (parts.length - 1), low = Math.min(Math.floor(at), parts.length - 2);
      const mixed = parts[low].map((value, part) => Math.round(value + (at - low) * (parts[low + 1][part] - value)));
      return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
    });
  };
  const PALETTES = Object.fromEntries(Object.entries(maps).map(([name, anchors]) => [name, interpolated(anchors, 256)]));

  // Colours of text and paper, which change with the setting of the reader.
  const themed = [];
  const ink = () => getComputedStyle(document.body).color;
  const colored = (color, set) => {
    if (color !== INK) return set(color);
    set(ink());
    themed.push(() => set(ink()));
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => themed.forEach((set) => set()));

  // Rows that several figures show.
  const tables = new Map();
  for (const [key, table] of Object.entries(asked)) tables.set(key, prepared(table));

  function prepared(table) {
    const n = table.names.length, labels = table.labels;
    const groups = labels !== null && labels.numbers === null, many = COLORS.length;
    let color = () => COLORS[0], shape = () => SHAPES[0], scale = null;
    if (groups) {
      // As look_of of marks.py.
      color = (row) => COLORS[labels.codes[row] % many];
      shape = (row) => SHAPES[(labels.codes[row] + Math.floor(labels.codes[row] / many)) % SHAPES.length];
    } else if (labels !== null) {
      const values = labels.numbers, [low, high] = extent_of(values);
      const palette = PALETTES.sequential;
      color = (row) =>
        Number.isFinite(values[row]) ? palette[Math.round((255 * (values[row] - low)) / (high - low || 1))] : NO_VALUE;
      scale = { low, high };
    }
    const rows = Array.from({ length: n }, (_, row) => row);
    const data = { ...table.columns, name: table.names, color: rows.map(color), shape: rows.map(shape) };
    data.label = labels === null ? rows.map(() => "") : rows.map((row) => labels.names[labels.codes[row]]);
    const filter = new B.BooleanFilter({ booleans: null }), source = new B.ColumnDataSource({ data });
    const found = { ...table, groups, scale, source, filter, view: new B.CDSView({ filter }), color, shape };
    source.selected.change.connect(() => told(found));
    return found;
  }

  function extent_of(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (!Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return low <= high ? [low, high] : [0, 1];
  }

  // The names of what is selected, and a way to copy them.
  const bar = element("div", { className: "selection", role: "status", hidden: true });
  const words = element("span"), list = element("span", { className: "names" });
  const button = (text, press) => element("button", { type: "button", textContent: text, onclick: press });
  let selected = { names: [], table: null };
  const copy = button("Copy names", async () => {
    const text = selected.names.join("\n");
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = element("textarea", { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy names"), 1500);
  });
  const clear = button("Select none", () => { selected.table.source.selected.indices = []; });
  bar.append(words, copy, clear, list);
  document.body.append(bar);

  function told(table) {
    const rows = table.source.selected.indices;
    if (!rows.length && selected.table !== table) return;
    selected = { table, names: rows.map((row) => table.names[row]) };
    bar.hidden = !rows.length;
    words.textContent = `${rows.length.toLocaleString("en")} ${table.word}${rows.length === 1 ? "" : "s"} selected`;
    const more = rows.length > MOST_NAMES ? ", ..." : "";
    list.textContent = selected.names.slice(0, MOST_NAMES).join(", ") + more;
  }

  // A legend of the labels of rows: a button for each, which hides it in all figures.
  function legend(table) {
    const box = element("div", { className: "legend", role: "group", ariaLabel: `Labels of ${table.word}s` });
    const hidden = new Set();
    const press = (code, made) => {
      hidden.has(code) ? hidden.delete(code) : hidden.add(code);
      made.setAttribute("aria-pressed", String(!hidden.has(code)));
      table.filter.booleans = hidden.size ? Array.from(table.labels.codes, (one) => !hidden.has(one)) : null;
    };
    table.labels.names.slice(0, MOST_IN_LEGEND).forEach((name, code) => {
      const row = table.labels.codes.indexOf(code);
      const swatch = element("span", { className: `swatch ${table.shape(row)}` });
      swatch.style.color = table.color(row);
      const made = element("button", { type: "button", title: `Hide or show ${name}` }, swatch, name.slice(0, 60));
      made.setAttribute("aria-pressed", "true");
      made.onclick = () => press(code, made);
      box.append(made);
    });
    const rest = table.labels.names.length - MOST_IN_LEGEND;
    if (rest > 0) box.append(element("span", { textContent: `and ${rest.toLocaleString("en")} more` }));
    return box;
  }

  // Scales of images of components: how far their colours go.
  const mappers = [];
  const reach = { share: 1, alike: false };
  function recolor() {
    const largest = Math.max(...mappers.map(({ base }) => base));
    for (const { mapper, base, symmetric } of mappers) {
      const high = reach.share * (reach.alike ? largest : base);
      mapper.setv({ low: symmetric ? -high : 0, high });
    }
  }
  function color_controls() {
    const shown = element("output", { textContent: "100 %" });
    const slider = element("input", { type: "range", min: 1, max: 100, value: 100, ariaLabel: "Colours up to" });
    slider.oninput = () => {
      reach.share = slider.value / 100;
      shown.textContent = `${slider.value} %`;
      recolor();
    };
    const alike = element("input", { type: "checkbox" });
    alike.onchange = () => { reach.alike = alike.checked; recolor(); };
    return element(
      "div", { className: "controls colors" },
      element("label", {}, "Colours up to ", slider, " ", shown, " of the largest value"),
      element("label", {}, alike, " of all maps together"),
    );
  }

  const ranges = new Map();
  function range_of(scale, extent) {
    const made = () => new B.Range1d({ start: extent[0], end: extent[1] });
    if (!scale.together) return made();
    if (!ranges.has(scale.together)) ranges.set(scale.together, made());
    return ranges.get(scale.together);
  }

  // As many marks as have room: of names every k-th, of marks of their own all but those that would touch one before.
  function apart(pairs, own, place, across) {
    const wide = (name) => (across ? 6.5 * name.length + 8 : 16);
    if (!own) {
      const widest = Math.max(...pairs.map(([, name]) => wide(name)));
      const room = Math.max(1, Math.floor((place(pairs.at(-1)[0]) - place(pairs[0][0])) / widest));
      return pairs.filter((_, number) => number % Math.ceil(pairs.length / room) === 0);
    }
    let last = -Infinity;
    return pairs.filter(([value, name]) => {
      const at = place(value), fits = at - wide(name) / 2 >= last;
      if (fits) last = at + wide(name) / 2;
      return fits;
    });
  }

  // Marks of an axis: its own where at least two are in sight, else round numbers.
  function marked(axis, scale, range, length, across) {
    const plain = axis.ticker;
    axis.major_label_policy = new B.NoOverlap({ min_distance: 4 });
    plain.desired_num_ticks = Math.max(2, Math.min(8, Math.floor(length / (across ? 80 : 20))));
    if (scale.whole && !scale.log) {
      plain.min_interval = 1;
      axis.formatter = new B.NumeralTickFormatter({ format: "0,0" });
    }
    if (!scale.marked) axis.setv({ major_tick_line_color: null, minor_tick_line_color: null, major_label_text_color: null, major_label_text_font_size: "0px" });
    const own = [scale.marks, scale.names].filter((pairs) => pairs.length > 1);
    if (!own.length) return;
    let last = "";
    const update = () => {
      const low = Math.min(range.start, range.end), high = Math.max(range.start, range.end);
      for (const pairs of own) {
        let inside = pairs.filter(([value]) => value >= low && value <= high);
        if (inside.length < 2) continue;
        inside = apart(inside, pairs === scale.marks, (value) => (length * (value - low)) / (high - low), across);
        const key = inside.map(([value]) => value).join();
        if (key === last) return;
        last = key;
        axis.major_label_overrides = new Map(inside);
        axis.ticker = new B.FixedTicker({ ticks: inside.map(([value]) => value) });
        return;
      }
      if (last !== "") axis.setv({ ticker: plain, major_label_overrides: new Map() });
      last = "";
    };
    update();
    range.change.connect(update);
  }

  // A glyph of columns of its own.
  const glyph = (plot, method, columns, how = {}) => {
    const named = Object.fromEntries(Object.keys(columns).map((name) => [name, { field: name }]));
    return plot[method]({ ...named, ...how, source: new B.ColumnDataSource({ data: columns }) });
  };
  const DRAW = {
    Line: (plot, { x, y, width, dash, opacity }) => glyph(plot, "line", { x, y }, { line_width: width, line_dash: dash, line_alpha: opacity }),
    Points: (plot, { x, y, shape, size, hollow, opacity }) => glyph(plot, "scatter", { x, y }, { marker: shape, size, fill_alpha: hollow ? 0 : opacity, line_alpha: hollow ? 1 : 0, line_width: 1.4 }),
    Area: (plot, { x, low, high, opacity }) => glyph(plot, "varea", { x, y1: low, y2: high }, { fill_alpha: opacity }),
    Boxes: (plot, { left, right, low, high, hatch }) => glyph(plot, "quad", { left, right, bottom: low, top: high }, { fill_alpha: 0.85, line_color: "white", line_width: 0.5, hatch_pattern: hatch || null, hatch_color: "white", hatch_scale: 8 }),
    Upright: (plot, { x, low, high, width }) => glyph(plot, "segment", { x0: x, y0: low, x1: x, y1: high }, { line_width: width }),
    Rule: (plot, { at, along, width, dash, opacity }) => {
      const Span = along === "x" ? B.VSpan : B.HSpan;
      const made = new Span({ [along]: { field: "at" }, line_width: width, line_dash: dash, line_alpha: opacity });
      return plot.add_glyph(made, new B.ColumnDataSource({ data: { at: [at] } }));
    },
    Words: (plot, { x, y, text }) => glyph(plot, "text", { x: [x], y: [y], text: [text] }, { text_align: "center", text_font_size: "11px", y_offset: -4 }),
  };

  function drawn(plot, mark, table) {
    if (mark.is === "Image") return image(plot, mark);
    if (mark.is === "RowLine") {
      const line = plot.line({ field: mark.x }, { field: mark.y }, { source: table.source, line_width: 0.5, line_alpha: 0.4, nonselection_alpha: 0.4 });
      for (const one of [line.glyph, line.nonselection_glyph]) colored(INK, (color) => one.line_color = { value: color });
      return line;
    }
    if (mark.is === "RowPoints") return row_points(plot, mark, table);
    const made = DRAW[mark.is](plot, mark);
    const named = { Area: ["fill_color"], Words: ["text_color"], Points: ["fill_color", "line_color"], Boxes: ["fill_color"] }[mark.is] ?? ["line_color"];
    colored(mark.is === "Words" ? INK : mark.color, (color) => {
      for (const one of [made.glyph, made.nonselection_glyph, made.muted_glyph]) {
        if (one && typeof one !== "string") for (const name of named) one[name] = { value: color };
      }
    });
    if (mark.ends) {
      for (const y of [mark.low, mark.high]) {
        const end = glyph(plot, "scatter", { x: mark.x, y }, { marker: "dash", size: 7 });
        colored(mark.color, (color) => end.glyph.line_color = { value: color });
      }
    }
    return made;
  }

  function row_points(plot, mark, table) {
    const size = table.names.length <= 500 ? 7 : 4, hidden = mark.opacity === 0;
    const made = plot.scatter({ field: mark.x }, { field: mark.y }, {
      source: table.source, view: table.view, marker: { field: "shape" }, size,
      fill_color: { field: "color" }, line_color: null, fill_alpha: mark.opacity,
      selection_fill_alpha: 1, nonselection_fill_alpha: hidden ? 0 : FAINT,
    });
    if (hidden) colored(INK, (color) => made.selection_glyph.setv({ line_color: { value: color }, line_width: { value: 1 } }));
    return made;
  }

  // The columns of an image: what lies between these edges, whose values `value` gives by row and column.
  function columns_of({ left, right, bottom, top }, height, width, value) {
    const upside = bottom > top, mirrored = left > right, values = new Float64Array(height * width);
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        values[row * width + column] = value(upside ? height - 1 - row : row, mirrored ? width - 1 - column : column);
      }
    }
    return {
      image: [ndarray(values, { dtype: "float64", shape: [height, width] })], x: [Math.min(left, right)], y: [Math.min(bottom, top)],
      dw: [Math.abs(right - left)], dh: [Math.abs(top - bottom)],
    };
  }

  function image(plot, mark) {
    const [height, width] = mark.values.shape;
    const columns = columns_of(mark, height, width, (row, column) => {
      const from = row * width + column;
      const faint = mark.faint !== null && mark.faint[from] > 0 && !Number.isNaN(mark.values[from]);
      return faint ? BEYOND : mark.values[from];
    });
    const [low, high] = mark.limits;
    const beyond = mark.faint === null ? null : TRANSPARENT;
    const mapper = new B.LinearColorMapper({ palette: PALETTES[mark.colors], low, high, nan_color: NO_VALUE, high_color: beyond });
    const named = Object.fromEntries(Object.keys(columns).map((name) => [name, { field: name }]));
    const made = plot.image({ ...named, source: new B.ColumnDataSource({ data: columns }), color_mapper: mapper });
    made.level = "image";
    if (mark.adjustable) mappers.push({ mapper, base: high, symmetric: low < 0 });
    if (mark.bar) {
      const colors = new B.ColorBar({
        color_mapper: mapper, title: mark.title || null, width: 10, padding: 4, background_fill_color: null,
        major_label_text_font_size: "11px", title_text_font_size: "11px", title_text_font_style: "normal",
      });
      if (mark.marks.length) colors.ticker = new B.FixedTicker({ ticks: mark.marks });
      colored(INK, (color) => colors.setv({ major_label_text_color: color, title_text_color: color, major_tick_line_color: color, bar_line_color: null }));
      plot.add_layout(colors, "right");
    }
    return made;
  }

  const touched = matchMedia("(pointer: coarse)").matches;
  const plots = new Map();

  function panel_plot(figure, panel, size) {
    const table = tables.get(figure.table);
    const [x_range, y_range] = [range_of(panel.x, panel.x_extent), range_of(panel.y, panel.y_extent)];
    const plot = B.Plotting.figure({
      x_range, y_range, x_axis_type: panel.x.log ? "log" : "linear", y_axis_type: panel.y.log ? "log" : "linear",
      x_axis_label: panel.x.label || null, y_axis_label: panel.y.label || null, title: panel.title,
      frame_width: size.width, frame_height: size.height, min_border_left: left_of(panel), min_border_right: RIGHT, min_border_top: 4,
      background_fill_color: null, border_fill_color: null, outline_line_color: null,
      toolbar_location: "above", tools: "", output_backend: "canvas", lod_threshold: null,
    });
    plot.toolbar.setv({ logo: null, autohide: !touched });
    plot.title.setv({ text_font_size: "12px", text_font_style: "normal" });
    colored(INK, (color) => {
      plot.title.text_color = color;
      for (const axis of plot.axes) {
        axis.setv({ axis_label_text_color: color, axis_line_color: color, major_tick_line_color: color, minor_tick_line_color: null });
        if (axis.major_label_text_font_size !== "0px") axis.major_label_text_color = color;
      }
    });
    for (const axis of plot.axes) axis.setv({ axis_label_text_font_style: "normal", axis_label_text_font_size: "12px", major_label_text_font_size: "11px" });
    for (const grid of plot.grids) colored(INK, (color) => grid.setv({ grid_line_color: color, grid_line_alpha: 0.08 }));
    marked(plot.xaxes[0], panel.x, x_range, size.width, true);
    marked(plot.yaxes[0], panel.y, y_range, size.height, false);
    if (panel.periods) {
      const above = new B.LogAxis({ axis_label: panel.periods, axis_label_text_font_style: "normal", formatter: new B.CustomJSTickFormatter({ code: "return String(+(1 / tick).toPrecision(3))" }) });
      colored(INK, (color) => above.setv({ axis_label_text_color: color, axis_line_color: color, major_tick_line_color: color, minor_tick_line_color: null, major_label_text_color: color }));
      plot.add_layout(above, "above");
    }
    if (panel.marks.some(({ is }) => is === "Image")) for (const grid of plot.grids) grid.visible = false;

    const labelled = new Map(), rows = [], images = [], others = [], rules = {};
    for (const mark of panel.marks) {
      const made = drawn(plot, mark, table);
      if (mark.is === "RowPoints") rows.push({ mark, made });
      else if (mark.is === "Image") images.push(made);
      else if (mark.is === "Rule") rules[mark.along] = made;
      else if (["Points", "Line", "Boxes", "Upright", "Area"].includes(mark.is)) others.push({ mark, made });
      if (mark.label) labelled.set(mark.label, [...(labelled.get(mark.label) ?? []), made]);
    }
    if (labelled.size) {
      const items = [...labelled].map(([name, renderers]) => new B.LegendItem({ label: { value: name.length > 24 ? `${name.slice(0, 21)}...` : name }, renderers }));
      const made = new B.Legend({ items, orientation: "horizontal", ncols: Math.max(1, Math.floor(size.width / 130)), click_policy: "hide", background_fill_color: null, border_line_color: null, label_text_font_size: "11px", padding: 0, margin: 0, spacing: 2 });
      colored(INK, (color) => made.label_text_color = color);
      plot.add_layout(made, "above");
    }
    const hovers = [];
    const tools = [new B.PanTool(), new B.BoxZoomTool(), new B.WheelZoomTool()];
    let active = tools[1];
    if (rows.length) {
      const renderers = rows.map(({ made }) => made), across = rows.some(({ mark }) => mark.across);
      const select = new B.BoxSelectTool({ renderers, dimensions: across ? "width" : "both", persistent: false });
      tools.push(select, new B.LassoSelectTool({ renderers }), new B.TapTool({ renderers }));
      active = select;
      for (const { mark, made } of rows) {
        const hover = new B.HoverTool({ renderers: [made], tooltips: tooltips(table, mark.x, mark.y) });
        hovers.push(hover);
        tools.push(hover);
      }
    }
    if (images.length && !rows.length) {
      tools.push(new B.HoverTool({ renderers: images, tooltips: [["value", "@image{0.0000g}"], [panel.x.label || "x", "$x{0.[00]}"], [panel.y.label || "y", "$y{0.[00]}"]] }));
    }
    const pointed = others.filter(({ mark }) => ["Points", "Line"].includes(mark.is)).map(({ made }) => made);
    if (pointed.length) tools.push(new B.HoverTool({ renderers: pointed, tooltips: [[panel.x.label || "x", "@x{0.[0000]}"], [panel.y.label || "y", "@y{0.[000000]}"]] }));
    const boxes = others.filter(({ mark }) => mark.is === "Boxes");
    for (const { mark, made } of boxes) tools.push(new B.HoverTool({ renderers: [made], tooltips: mark.label ? mark.label.replace(/[@$%{}<&]/g, " ") : [["from", "@bottom"], ["to", "@top"]] }));
    tools.push(new B.ResetTool(), new B.SaveTool());
    plot.add_tools(...tools);
    // A finger scrolls the page.
    plot.toolbar.setv({ active_drag: touched ? null : active, active_scroll: null });
    return { plot, rows, hovers, table, x_range, y_range, images, rules };
  }

  function tooltips(table, x, y) {
    const found = [[table.word, "@name"]];
    if (table.labels !== null) found.push(["label", "@label"]);
    return [...found, [x, `@{${x}}{0.[0000]}`], [y, `@{${y}}{0.[0000]}`]];
  }

  // Two lists with which the columns of a panel are chosen.
  function choices(panel, made) {
    const box = element("div", { className: "controls" });
    const mark = panel.marks[0], chosen = { x: mark.x, y: mark.y };
    const with_room = (column) => {
      const [low, high] = extent_of(made.table.columns[column]), room = 0.04 * (high - low) || 0.5;
      return { start: low - room, end: high + room };
    };
    const list = (along) => {
      const select = element("select", { ariaLabel: along === "x" ? "Across" : "Up" });
      for (const name of panel.choices) select.append(element("option", { value: name, textContent: name, selected: name === chosen[along] }));
      select.onchange = () => {
        chosen[along] = select.value;
        const { plot, rows, hovers, table } = made;
        for (const { made: renderer } of rows) {
          for (const one of [renderer.glyph, renderer.selection_glyph, renderer.nonselection_glyph]) one[along] = { field: select.value };
        }
        for (const hover of hovers) hover.tooltips = tooltips(table, chosen.x, chosen.y);
        made[`${along}_range`].setv({ ...with_room(select.value), reset_start: with_room(select.value).start, reset_end: with_room(select.value).end });
        plot[`${along}axes`][0].axis_label = select.value;
      };
      return select;
    };
    box.append(element("label", {}, "across ", list("x")), element("label", {}, "up ", list("y")));
    return box;
  }

  // A slider below each slice of a volume, which moves through those across its axis; lines in the other panels say where.
  function sliders({ values, across }, made) {
    const { shape } = values, strides = [shape[1] * shape[2], shape[2], 1];
    across.forEach((slices, axis) => {
      const { plot, cell, images: [shown] } = made[axis], [down, along] = [0, 1, 2].filter((one) => one !== axis);
      const closer = shown.data_source.data;
      const slider = element("input", { type: "range", min: 0, max: shape[axis] - 1, value: slices.at, ariaLabel: "Slice" });
      const told = element("output");
      const tell = (at) => {
        slider.setAttribute("aria-valuetext", slices.names[at]);
        told.textContent = `${at + 1} of ${shape[axis]}`;
      };
      tell(slices.at);
      slider.oninput = () => {
        const at = Number(slider.value);
        const value = (row, column) => values[at * strides[axis] + row * strides[down] + column * strides[along]];
        shown.data_source.data = at === slices.at ? closer : columns_of(slices, shape[down], shape[along], value);
        plot.title.text = slices.names[at];
        tell(at);
        for (const other of [down, along]) {
          const first = axis === Math.min(...[0, 1, 2].filter((one) => one !== other));
          made[other].rules[first ? "y" : "x"].data_source.data = { at: [across[other].lines[first ? 0 : 1][at]] };
        }
      };
      cell.append(element("label", { className: "controls slice", title: "Slice" }, slider, told));
    });
  }

  // Widths of panels beside each other are the same, without what is around them; below each other where they would be narrow.
  const left_of = (panel) => (panel.y.marked || panel.y.label ? LEFT : BARE);
  function sizes(figure, row, room) {
    const around = row.map((panel) => left_of(panel) + RIGHT + (panel.marks.some(({ is, bar }) => is === "Image" && bar) ? BAR : 0));
    const most = Math.max(...figure.panels.map((one) => one.length)), sum = around.reduce((one, other) => one + other, 0);
    // Marks of many digits take more than LEFT.
    const together = (room - sum - (most - row.length) * around[0]) / most - (most > 1 ? SPARE : 0);
    return row.map((panel, number) => {
      const width = Math.max(100, Math.floor(together < NARROW ? room - around[number] : together));
      return { width, height: Math.round(panel.ratio ? panel.ratio * width : figure.height - 60) };
    });
  }

  const framed = (cell, { width }) => cell.style.setProperty("--frame", `${width}px`);

  async function draw(place) {
    const figure = figures[Number(place.dataset.figure)], table = tables.get(figure.table);
    const room = Math.min(place.clientWidth, figure.width + 40);
    const canvas = element("div", { className: "canvas" }), made = [];
    if (table?.labels && !place.closest("section, body").querySelector(`.legend[data-table="${figure.table}"]`)) {
      const names = legend(table);
      names.dataset.table = figure.table;
      canvas.append(names);
    }
    if (!document.querySelector(".controls.colors") && figure.panels.flat().some((panel) => panel.marks.some((mark) => mark.adjustable))) {
      canvas.append(color_controls());
    }
    for (const row of figure.panels) {
      const line = element("div", { className: "panels" }), fitting = sizes(figure, row, room);
      canvas.append(line);
      row.forEach((panel, number) => {
        const found = panel_plot(figure, panel, fitting[number]), box = element("div");
        if (panel.choices.length) box.append(choices(panel, found));
        const cell = element("div", {}, box);
        framed(cell, fitting[number]);
        line.append(cell);
        made.push({ ...found, cell, box, row, number });
      });
    }
    if (figure.volume !== null) sliders(figure.volume, made);
    place.append(canvas);
    place.classList.add("live");
    place.querySelector(".waiting")?.remove();
    plots.set(place, { figure, made });
    for (const { plot, box } of made) {
      homes.push(box);
      all.add_root(plot);
    }
    if (mappers.length) recolor();
    place.dataset.drawn = "yes";
  }

  let waiting = null;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      for (const [place, { figure, made }] of plots) {
        const room = Math.min(place.clientWidth, figure.width + 40);
        for (const { plot, cell, row, number } of made) {
          const size = sizes(figure, row, room)[number];
          framed(cell, size);
          plot.setv({ frame_width: size.width, frame_height: size.height });
        }
      }
    }, 150);
  });

  // A figure is drawn when it comes into sight.
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      draw(target).catch((error) => console.error(error));
    }
  }, { rootMargin: "600px" });
  for (const place of document.querySelectorAll(".plot")) seen.observe(place);
  window.dpca = { tables, plots };
})().catch((error) => console.error(error));
