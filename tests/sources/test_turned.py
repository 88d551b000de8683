"""Sparse matrices whose lines are turned into lines of the other side, band by band, in files of scratch."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import zarr
from hypothesis import given
from hypothesis import strategies as st

import dpca
from dpca.errors import StorageError
from dpca.planning import search
from dpca.planning.rechunk import DenseCopy, SparseCopy, copy_in, plan_copy
from dpca.sources import sparse, turned
from dpca.sources.chosen import Selection
from tests.commands.calls import dpca as run_dpca
from tests.drawn import examples
from tests.sources.test_sparse import DTYPES, KINDS, drawn_pieces, parts_of, random_matrix, singular_values, write


def turned_copy(source, kind, step, path):
    """A copy in bands of so many lines."""
    axis = KINDS.index(kind)
    chunks = tuple(step if number == axis else length for number, length in enumerate(source.layout.shape))
    copy = SparseCopy(copy_in(source.layout, (axis,), chunks).layout, axis, 0)
    assert copy.create(str(path))
    with source.open() as reader:
        for number in range(copy.n_units):
            copy.write(str(path), number, reader, synced=number % 2 == 0)
            assert copy.damage(str(path), number) is None
    return copy


@given(st.data())
@examples(20)
def test_any_region_of_a_turned_copy_is_that_of_the_dense_matrix_and_so_are_its_lines(tmp_path_factory, data):
    kind, rng = data.draw(st.sampled_from(KINDS)), np.random.default_rng(data.draw(st.integers(0, 99)))
    shape = data.draw(st.tuples(st.integers(1, 30), st.integers(1, 30)))
    x = random_matrix(rng, shape, data.draw(st.sampled_from((0, 0.03, 0.2, 1))), data.draw(st.sampled_from(DTYPES)))
    folder = tmp_path_factory.mktemp("x")
    source = write(folder / "x.h5", parts_of(x, kind), shape, kind)
    if data.draw(st.booleans()):
        chosen = Selection(1, shape[1], np.flatnonzero(rng.random(shape[1]) < 0.7), "chosen")
        source, x = source.choose(chosen), x[:, chosen.positions]
    copy = turned_copy(source, kind, data.draw(st.integers(1, 12)), folder / "copy")
    opened = copy.open(str(folder / "copy"))
    assert opened.lines_axis == 1 - source.lines_axis
    with pytest.MonkeyPatch.context() as patch, opened.open() as reader:
        patch.setattr(turned, "BLOCK", 16)
        for _ in range(4):
            region = tuple(drawn_pieces(data, length) for length in x.shape)
            np.testing.assert_array_equal(reader.read(region), x[region])
            lines = reader.read_lines(region)
            if lines is None:
                assert 8 * np.count_nonzero(x) > x[region].size
                continue
            made = scipy.sparse.csr_array((lines.values.astype("f8"), lines.places, lines.ends), lines.shape).toarray()
            np.testing.assert_array_equal(made if lines.axis == 0 else made.T, x[region])


def test_values_that_are_stored_twice_are_added_up_and_those_that_are_not_a_number_are_kept():
    values = np.array([1.0, np.nan, 2.0, 0.0, 4.0])
    matrix = scipy.sparse.csr_array((values, [3, 5, 3, 7, 2], [0, 3, 5]), (2, 100))
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    copy = turned_copy(write("x.h5", parts, matrix.shape, "csr"), "csr", 1, Path("copy"))
    with copy.open("copy").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 2), slice(0, 100))), matrix.toarray())
        assert reader.read_lines((slice(0, 2), slice(0, 100))).ends[-1] == 5


def test_a_band_that_ends_early_is_damage_and_is_named():
    x = random_matrix(np.random.default_rng(0), (20, 50), 0.1, "f4")
    copy = turned_copy(write("x.h5", parts_of(x, "csr"), x.shape, "csr"), "csr", 8, Path("copy"))
    band = Path("copy/band-000001")
    content = band.read_bytes()
    for length in (len(content) - 1, 4 * 51 - 1, 0):
        band.write_bytes(content[:length])
        assert "band-000001 has" in copy.damage("copy", 1)
        with copy.open("copy").open() as reader, pytest.raises(StorageError, match=r"x\.h5, X.* band-000001|ends"):
            reader.read((slice(0, 20), slice(0, 50)))
    assert copy.damage("copy", 0) is None
    # Of the right size, with a place that no value can have.
    for place in (8, -1):
        band.write_bytes(content[: 4 * 51] + np.int32(place).tobytes() + content[4 * 52 :])
        assert copy.damage("copy", 1) is None
        for read in ("read", "read_lines"):
            with (
                copy.open("copy").open() as reader,
                pytest.raises(StorageError, match=r"x\.h5.*band-000001 of its copy is damaged"),
            ):
                getattr(reader, read)((slice(0, 20), slice(0, 50)))


def test_what_takes_less_of_the_disk_is_made(monkeypatch):
    monkeypatch.setattr(sparse, "LINES_BYTES", 1)
    few, many = (
        write(
            f"{name}.h5",
            parts_of(random_matrix(np.random.default_rng(0), (40, 3000), share, "f4"), "csr"),
            (40, 3000),
            "csr",
        )
        for name, share in (("few", 0.05), ("many", 0.5))
    )
    assert isinstance(copy_in(few.layout, (0,), (10, 3000)), SparseCopy)
    # A sparse file of a single line is mostly the ends of lines; lines of the side that is streamed are read as they are.
    for layout, kept, chunks in ((few.layout, 0, (1, 3000)), (many.layout, 0, (10, 3000)), (few.layout, 1, (10, 3000))):
        assert isinstance(copy_in(layout, (kept,), chunks), DenseCopy)
    assert plan_copy(few.layout, (0,), 64 * 10 * 4 * 3000).unit == (10, 3000)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", ["auto", "block_krylov"])
def test_fits_of_lines_along_the_smaller_side_read_what_is_stored_and_agree_with_dense_ones(kind, solver, monkeypatch):
    monkeypatch.setattr(search, "SLAB_BYTES", 20_000)
    monkeypatch.setattr(search, "SLAB_WIDTH", 1)
    monkeypatch.setattr(sparse, "LINES_BYTES", 1)
    shape = (60, 2000) if kind == "csr" else (2000, 60)
    x = random_matrix(np.random.default_rng(0), shape, 0.04, "f8")
    (x if kind == "csr" else x.T)[7] = 1.0  # a dense line among the others
    write("x.zarr", parts_of(x, kind), shape, kind, {"data": 300, "indices": 200})
    fit = dpca.PCA(4, svd_solver=solver).fit(zarr.open_group("x.zarr")["X"])
    if solver == "auto":  # block Krylov keeps the side that lines of storage are along
        assert fit._result.manifest["reading"] == "copy"
        assert 0 < fit._result.manifest["counts"]["bytes_copied_to_scratch"] < x.nbytes / 3
    np.testing.assert_allclose(fit.singular_values_, singular_values(scipy.sparse.csr_array(x), 4), rtol=1e-10)
    np.testing.assert_allclose(fit.transform(x), dpca.PCA(4).fit(x).transform(x), atol=1e-6)


def test_the_plan_says_that_a_matrix_is_turned_and_how_it_would_not_have_to_be(monkeypatch, capsys):
    monkeypatch.setattr(search, "SLAB_BYTES", 20_000)
    monkeypatch.setattr(search, "SLAB_WIDTH", 1)
    for kind, shape in (("csr", (60, 2000)), ("csc", (2000, 60))):
        x = random_matrix(np.random.default_rng(0), shape, 0.04, "f8")
        write(f"{kind}.h5", parts_of(x, kind), shape, kind)
        Path("c.yaml").write_text(
            f"input: {{uri: {kind}.h5, array: X}}\nmodel: {{n_components: 2}}\noutput: {{path: r}}\n"
        )
        assert run_dpca("plan", "c.yaml") == 0
        other = "tocsc" if kind == "csr" else "tocsr"
        assert f"stored so (X.{other}()), the input would need none" in capsys.readouterr().out
