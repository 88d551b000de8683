"""The arrays of a result: the names of its axes, its coordinates, and what both workflows write."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpca.derived.regressors import Design
from dpca.errors import ConfigError, InputError
from dpca.genotypes.plink import People
from dpca.genotypes.variants import Variants
from dpca.numerics.panels import BlockScaling, Rules
from dpca.numerics.spectrum import SIGN_RULE, Spectrum
from dpca.settings import INPUT
from dpca.slabs import Plan
from dpca.sources.base import Layout, Reader, Source
from dpca.sources.coordinate import Coordinate, Parts, difference
from dpca.sources.groups import Groups, names_of_sums
from dpca.store.meanings import ONE, common_unit
from dpca.store.outputs import REGRESSOR, SAMPLE_GROUP, Outputs
from dpca.store.stored import RESERVED_DIMS

SPECTRAL = ("singular_values", "explained_variance", "explained_variance_ratio", "projection_error")
"""Arrays with a value for each component."""
SAMPLE, GROUP = "sample", "group"
COMPONENTS, WEIGHTED_COMPONENTS = "components", "weighted_components"
"""Maps of features, orthonormal in the inner product if there is one; and their products with it, which give scores of X_c."""
REGRESSION, REGRESSORS = "regression", "regressors"
"""Names of what was subtracted beside means: coefficients (regressor, features...), of these regressors (sample, regressor)."""
GROUP_SCALE = "group_scale"
"""Name of what was divided by after that in each group of samples, (sample_group, features...)."""
CONVENTION = "convention_eigenvalues"
"""Eigenvalues as the program prints them whose convention scales dosages."""
FAMILY = "sample_family"
OF_VARIANTS = {
    "variant_chromosome": "chromosomes",
    "variant_position": "positions",
    "variant_counted_allele": "counted",
    "variant_other_allele": "other",
}
"""Arrays with a value for each variant, and the attribute of `dpca.genotypes.variants.Variants`."""
_NAME = re.compile(r"(?!__|zarr\.)[^./][^/]*")
"""Usable names of dimensions. A coordinate is an array of that name, so it is no path, nor a name reserved by Zarr."""


def names_of_components(inner_product: bool) -> tuple[str, ...]:
    """The arrays of components that a fit has."""
    return (COMPONENTS, WEIGHTED_COMPONENTS) if inner_product else (COMPONENTS,)


def of_group(name: str, group: str) -> str:
    """The name of an array, or of a dimension, of one of several groups of features; of the only group it is as it was."""
    return f"{name}_{group}" if group else name


def stage_of(name: str, group: str) -> str:
    """The name of a stage that is about one of several groups of features."""
    return f"{name} of {group}" if group else name


_OF_FEATURES = "feature_"
"""Beginning of the name of a feature axis that would be one of dpca's own: component, sample, group."""


@dataclass(frozen=True)
class Dims:
    """Names of the axes of a result."""

    sample: str
    features: tuple[str, ...]
    group: str = ""
    """The name of the group that the features belong to, with which their axes begin; empty for the only one."""

    @classmethod
    def of(cls, dims: Sequence[str | None], samples_axis: int) -> Dims:
        """The names in the source where they are usable, else `sample`, and `feature` or `feature_<i>`."""
        others = [*dims[:samples_axis], *dims[samples_axis + 1 :]]
        default = ["feature"] if len(others) == 1 else [f"feature_{axis}" for axis in range(len(others))]
        names = [
            _usable(f"{_OF_FEATURES}{dim}" if dim in RESERVED_DIMS else dim, fallback)
            for dim, fallback in zip(others, default, strict=True)
        ]
        if len(set(names)) < len(names):
            names = default
        sample = _usable(dims[samples_axis], SAMPLE)
        taken = {sample, f"{sample}_b"} & set(names)
        return cls(SAMPLE if taken or f"{sample}_b" in RESERVED_DIMS else sample, tuple(names))

    def of_features(self, group: str, shared: Collection[str] = ()) -> Dims:
        """The names for one of several groups of features: NAME_latitude, NAME_longitude, but for those that groups share."""
        names = (name if name in shared else f"{group}_{name}" for name in self.features)
        return replace(self, features=tuple(names), group=group)

    def plain(self, name: str) -> str:
        """The name of an axis without that of the group."""
        return name.removeprefix(f"{self.group}_") if self.group and name in self.features else name

    def given(self, name: str) -> str:
        """The name of a feature axis in the input, where it has one."""
        plain = self.plain(name)
        return given if (given := plain.removeprefix(_OF_FEATURES)) in RESERVED_DIMS else plain

    def of_coordinate(self, name: str) -> str:
        """The name of a coordinate of features that is no index."""
        return f"{self.group}_{name}" if self.group else name

    @property
    def sample_b(self) -> str:
        """The name of the second axis of an array with two axes of samples."""
        return f"{self.sample}_b"

    def placed(self, samples_axis: int) -> tuple[str, ...]:
        """The names of all axes, in the order of the input."""
        return (*self.features[:samples_axis], self.sample, *self.features[samples_axis:])


def _usable(dim: str | None, fallback: str) -> str:
    return dim if dim and dim not in RESERVED_DIMS and _NAME.fullmatch(dim) else fallback


Names = dict[int, str]
"""Names of axes in a result, by the number of the axis in the input."""


def dims_of(groups: Groups) -> tuple[tuple[Dims, ...], tuple[Names, ...]]:
    """The names of the axes of a result with these groups of features, for each, and the axes whose coordinates it gives.

    The samples' axis and its coordinate are those of the first group that has a name for it. Feature axes of one name are the
    same, and keep it, if they have one length and the same coordinate in every group; else each has that of its group before it.
    """
    for group in groups:
        _check_stack(group.layout)
    given = [Dims.of(group.layout.dims, group.samples_axis) for group in groups]
    if len(groups) == 1:
        return (given[0],), (dict(enumerate(given[0].placed(groups[0].samples_axis))),)
    named = next((n for n, group in enumerate(groups) if group.layout.dims[group.samples_axis]), 0)
    shared = _shared(groups, given)
    found, names, written = [], [], set[str]()
    for number, (group, dims) in enumerate(zip(groups, given, strict=True)):
        own = replace(dims, sample=given[named].sample).of_features(group.name, shared)
        axes = dict(enumerate(own.placed(group.samples_axis)))
        if number != named:
            del axes[group.samples_axis]
        found.append(own)
        names.append({axis: name for axis, name in axes.items() if name not in written})
        written |= shared.intersection(axes.values())
    _check_distinct(found)
    return tuple(found), tuple(names)


def _check_stack(layout: Layout) -> None:
    """Refuse several axes of samples with names that a result has of its own, or that one of features has."""
    names = () if layout.stack is None else layout.stack.names
    taken = [name for name in names if not _usable(name, "") or name in layout.dims]
    if taken:
        raise InputError(
            f"{layout.name}: {INPUT.samples_axis} has {taken[0]!r}, which is the name of something else in a result",
            "Give the axis another name, as rename of xarray does.",
            key="input.samples_axis",
        )


def _shared(groups: Groups, dims: Sequence[Dims]) -> set[str]:
    """The names of feature axes that several groups have, and that are the same in all of them."""
    places: dict[str, list[tuple[Source, int]]] = {}
    for group, own in zip(groups, dims, strict=True):
        for axis, name in enumerate(own.placed(group.samples_axis)):
            if axis != group.samples_axis:
                places.setdefault(name, []).append((group.source, axis))
    prefixes = tuple(f"{group.name}_" for group in groups)
    return {
        name
        for name, (first, *others) in places.items()
        if others and not name.startswith(prefixes) and all(_is_same_axis(name, first, other) for other in others)
    }


def _is_same_axis(name: str, first: tuple[Source, int], other: tuple[Source, int]) -> bool:
    """Whether two axes have this name in their files, the same length, and the same coordinate, if any."""
    (source, axis), (second, beside) = first, other
    layouts = source.layout, second.layout
    if [layouts[0].dims[axis], layouts[1].dims[beside]] != [name, name] or (
        layouts[0].shape[axis] != layouts[1].shape[beside]
    ):
        return False
    with source.open() as one, second.open() as two:
        ours, theirs = one.coordinate(axis), two.coordinate(beside)
        if ours is None or theirs is None:
            return ours is theirs
        same_units = ours.attributes.get("units") == theirs.attributes.get("units")
        return same_units and difference(theirs, ours) is None


def _check_distinct(dims: Sequence[Dims]) -> None:
    """Refuse names of groups that make one name of two axes, or of an axis and an array."""
    arrays = [
        of_group(name, one.group)
        for one in dims
        for name in (
            "mean",
            "scale",
            "weights",
            COMPONENTS,
            WEIGHTED_COMPONENTS,
            "rotated_components",
            REGRESSION,
            GROUP_SCALE,
        )
    ]
    shared = {name for one in dims for name in one.features if one.plain(name) == name}
    own = [name for one in dims for name in one.features if name not in shared]
    taken = [dims[0].sample, dims[0].sample_b, *arrays, *shared, *own]
    double = next((name for name in taken if taken.count(name) > 1), None)
    if double is not None:
        raise ConfigError(
            f"inputs {', '.join(one.group for one in dims)}: {double!r} would be the name of two things in the result, since names of "
            "dimensions begin with that of their input",
            "Give one of the inputs another name.",
            key="input",
        )


def unit_of(groups: Groups, rules: Rules, block_scaling: BlockScaling) -> str | None:
    """The unit of centred, scaled and weighted data: theirs, or 1 where they were divided by it; None where it is not known."""
    if rules.scale == "pareto" and not rules.by_group:
        return None
    if rules.scale != "none" or rules.by_group or (len(groups) > 1 and block_scaling != "none"):
        return ONE
    return common_unit(group.layout.units for group in groups)


def units_of(layout: Layout, rules: Rules) -> dict[str, dict[str, str]]:
    """The attributes of `mean`, `scale` and `group_scale` that say their units."""
    scale = layout.of_units if rules.scale in ("std", "range") else {}
    if rules.by_group:
        scale = {"units": ONE}
    return {"mean": layout.of_values, "scale": scale, GROUP_SCALE: layout.of_units}


def create_outputs(
    outputs: Outputs,
    plans: Sequence[Plan],
    groups: Groups,
    attributes: Mapping[str, Any],
    rules: Rules,
    design: Design | None = None,
) -> tuple[Dims, ...]:
    """Create the arrays that the first pass fills, with coordinates; return the names of the axes, for each group.

    With regressors, `regressors` holds those of the samples, and `regression` is made for their coefficients; where what they leave is divided
    in groups of samples, `group_scale` is made for the divisors.
    """
    outputs.create({"sign_rule": SIGN_RULE, **attributes})
    written = rules.finds(any(group.weights is not None for group in groups))
    found, names = dims_of(groups)
    for group, plan, dims, axes in zip(groups, plans, found, names, strict=True):
        if plan.keeps == "samples":
            # Without centering, scaling or weights these arrays take no space.
            for name, fill in (("mean", 0.0), ("scale", 1.0), ("weights", 1.0)):
                outputs.create_tiled(
                    of_group(name, group.name),
                    plan,
                    dims.features,
                    np.float64,
                    fill=fill,
                    attributes=units_of(group.layout, rules).get(name, {}),
                    unwritten=name not in written,
                )
            if design is not None:
                name, p = of_group(REGRESSION, group.name), len(design.names)
                outputs.create_tiled(name, plan, dims.features, np.float64, p, component_dim=REGRESSOR)
            if design is not None and rules.by_group:
                name, about = of_group(GROUP_SCALE, group.name), units_of(group.layout, rules)[GROUP_SCALE]
                rows = len(design.groups)
                outputs.create_tiled(
                    name, plan, dims.features, np.float64, rows, attributes=about, component_dim=SAMPLE_GROUP
                )
        write_coordinates(outputs, group.source, dims, axes)
    if len(names_of := names_of_sums(groups)) > 1:
        outputs.write_text(GROUP, names_of, GROUP)
    if design is not None:
        outputs.write_text(REGRESSOR, design.names, REGRESSOR)
        outputs.write(REGRESSORS, design.matrix, (found[0].sample, REGRESSOR))
    if design is not None and rules.by_group:
        outputs.write_text(SAMPLE_GROUP, design.groups, SAMPLE_GROUP)
    return found


def write_coordinates(outputs: Outputs, source: Source, dims: Dims, names: Mapping[int, str]) -> None:
    """Copy the coordinates of an input along some axes; `names` has the names of these axes in the result."""
    with source.open() as reader:
        for name, coordinate in _coordinates_of(reader, dims, names):
            outputs.write_coordinate(name, coordinate)
        others = list(_auxiliaries_of(reader, dims, names))
        for name, along, coordinate in others:
            outputs.write_coordinate(name, coordinate, *along)
        written, stack = [name for name, *_ in others], source.layout.stack
        axes = {} if stack is None else dict(zip(stack.names, stack.lengths, strict=True))
        outputs.name_coordinates(written, axes if dims.sample in names.values() and axes.keys() <= {*written} else {})


def _coordinates_of(reader: Reader, dims: Dims, names: Mapping[int, str]) -> Iterator[tuple[str, Coordinate]]:
    for axis, name in names.items():
        coordinate = reader.coordinate(axis)
        if coordinate is not None and (name == dims.sample or dims.given(name) == coordinate.name):
            yield name, coordinate


def _auxiliaries_of(
    reader: Reader, dims: Dims, names: Mapping[int, str]
) -> Iterator[tuple[str, tuple[str, ...], Coordinate]]:
    """The coordinates that are no index, with the names of their axes; one along samples and features at once is none of either."""
    for one in reader.auxiliaries():
        along = tuple(names[axis] for axis in one.axes if axis in names)
        if len(along) < len(one.axes) or (dims.sample in along and len(along) > 1):
            continue
        name = one.coordinate.name if along == (dims.sample,) else dims.of_coordinate(one.coordinate.name)
        if _usable(name, "") and name not in names.values() and not _is_of_array(name, dims.group):
            yield name, along, one.coordinate


def _is_of_array(name: str, group: str) -> bool:
    """Whether a result has, or may have, an array of this name that is no coordinate."""
    return name in (FAMILY, *OF_VARIANTS) or any(name == of_group(reserved, group) for reserved in RESERVED_DIMS)


def coordinates_to_copy(source: Source, dims: Dims, names: Mapping[int, str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The memory that `write_coordinates` takes for each coordinate in turn, labelled; and which it omits, and why."""
    if not any(source.layout.dims[axis] for axis in names):
        return {}, ()  # need not be opened for this
    with source.open() as reader:
        found = dict(_coordinates_of(reader, dims, names))
        held = held_to_copy(found | {name: coordinate for name, _, coordinate in _auxiliaries_of(reader, dims, names)})
        return held, tuple(reader.left_out)


def held_to_copy(coordinates: Mapping[str, Coordinate]) -> dict[str, int]:
    """Bytes of memory that copying the coordinates takes, one coordinate after the other, labelled."""
    return {f"coordinate {name}, copied in pieces": coordinate.held for name, coordinate in coordinates.items()}


def write_spectrum(outputs: Outputs, spectrum: Spectrum, of_convention: float | None = None) -> None:
    """Write the arrays that have neither a sample axis nor feature axes.

    Parameters
    ----------
    of_convention : what a convention multiplies eigenvalues by; None where there is none
    """
    for name in SPECTRAL:
        outputs.write(name, getattr(spectrum, name), ("component",))
    outputs.write("eigenvalues", spectrum.eigenvalues, ("eigenvalue",))
    if of_convention is not None:
        outputs.write(CONVENTION, spectrum.eigenvalues * of_convention, ("eigenvalue",))


def write_genotypes(outputs: Outputs, source: Source, dims: Dims, of_variants: bool) -> None:
    """The families of people, for exports, and what is known of variants, for projections and reports of their components.

    Parameters
    ----------
    of_variants : whether it is written what is known of variants, where features are these
    """
    if (people := source.about(People)) is not None:
        families = people.families
        outputs.write_coordinate(FAMILY, Coordinate(FAMILY, families, Parts.of(families.dtype)), dims.sample)
    variants = source.about(Variants) if of_variants and len(dims.features) == 1 else None
    if variants is None:
        return
    (dim,) = dims.features
    for name, field in OF_VARIANTS.items():
        values = getattr(variants, field)
        outputs.write_coordinate(name, Coordinate(name, values, values.parts), dim)


def write_scores(outputs: Outputs, spectrum: Spectrum, dims: Dims, whiten: bool) -> None:
    """Write scores and alpha from memory."""
    outputs.write("scores", spectrum.scores(whiten), (dims.sample, "component"), {"whitened": whiten})
    outputs.write("alpha", spectrum.alpha, (dims.sample, "component"))
