"""Names and labels from files of their own."""

import csv
import io
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.config.inputs import Input, Names, SampleNames
from dpca.errors import InputError
from dpca.sources import columns
from dpca.sources.columns import column_of
from dpca.sources.labels import Place, labels_of, read_labels
from tests.drawn import examples

TABLE = 'id,"sex, at birth",diagnosis\nc,f,"a ""b"", c"\na,m,none\nb,f,"two\nlines"\n'


def test_a_column_of_a_table_with_quoted_fields():
    Path("t.csv").write_text(TABLE)
    assert list(read_labels("t.csv", None, 3, column="diagnosis")) == ['a "b", c', "none", "two\nlines"]
    assert list(read_labels("t.csv", None, 3, column="sex, at birth")) == ["f", "m", "f"]
    Path("t.tsv").write_bytes("\ufeffid\tgroup, all\r\nä\t1,5\r\nb\t2\r\n\r\n".encode())
    assert list(read_labels("t.tsv", None, 2, column="id")) == ["ä", "b"]
    assert list(read_labels("t.tsv", None, 2, column="group, all")) == ["1,5", "2"]


def test_a_file_of_lines_may_be_called_a_table():
    Path("t.csv").write_text("a\nb\n")
    assert list(read_labels("t.csv", None, 2)) == ["a", "b"]


_CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["C"], include_characters=',"\n'), min_size=1).filter(
    lambda text: text.strip()
)


@examples(30)
@given(st.lists(st.tuples(_CELLS, _CELLS), min_size=1), st.data())
def test_parts_of_a_column_are_what_was_written(rows, data):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("one", "two"), *rows])
    Path("p.csv").write_bytes(text.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MARKED_ROWS", data.draw(st.integers(1, 4)))
        column = column_of("p.csv", "two", "features", "input.feature_names")
        start, stop = sorted(data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
        assert column.shape == (len(rows),)
        assert column[start:stop].tolist() == [value.strip() for _, value in rows[start:stop]]


@pytest.mark.parametrize(
    ("file", "text", "column", "sentence"),
    [
        ("t.csv", TABLE, "diagnosys", "t.csv: has no column 'diagnosys'; it has id, sex, at birth, diagnosis\nDid you mean diagnosis?"),
        ("t.csv", TABLE, None, "t.csv: which column? It has id, sex, at birth, diagnosis"),
        ("t.csv", "a,a\n1,2\n", "a", "has 2 columns 'a'"),
        ("t.csv", "a,b\n1,2\n1\n1,2\n", "b", "t.csv: line 3 has 1 values, but there are 2 columns"),
        ("t.csv", 'a,b\n1,"2\n3"\n1,2,3\n', "b", "t.csv: line 4 has 3 values, but there are 2 columns"),
        ("t.csv", 'a,b\n1,"2\n', "b", "t.csv: line 2 can't be read: unexpected end of data"),
        ("t.csv", "a,b\n1,2\n1, \n1,2\n", "b", "line 3 has nothing in column 'b', so sample 1 has no label"),
        ("t.csv", "a,b\n1,2\n\n1,2\n", "b", "line 3 has nothing in column 'b', so sample 1 has no label"),
        ("t.csv", "a,b\n1,2\n", "b", "t.csv: holds labels of shape (1,), but there are 3 samples"),
        ("t.csv", "", "b", "t.csv: has no column 'b'"),
        ("t.csv", "a;b\n1;2\n", "b", "one column alone, 'a;b', which seems to hold several, separated by semicolons"),
        ("t.csv", "a\tb\n1\t2\n", "b", "which seems to hold several, separated by tabs"),
        ("t.tsv", "a,b\n1,2\n", "b", "which seems to hold several, separated by commas"),
        ("t.txt", "a,b\n1,2\n", "b", "t.txt: has no columns with names"),
        ("t.csv", b"a,b\n\xff,1\n", "a", "t.csv: labels can't be read: it is no text (UTF-8)"),
        ("none.csv", None, "a", "none.csv: labels can't be read: it does not exist"),
    ],
)  # fmt: skip
def test_tables_that_can_not_be_read(file, text, column, sentence):
    if text is not None:
        Path(file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as error:
        read_labels(file, None, 3, column=column)
    assert sentence in str(error.value)


def _source(names=("a", "b", "c"), **keys):
    group = zarr.create_group("x.zarr", overwrite=True)
    group.create_array("x", data=np.arange(12.0).reshape(3, 4), dimension_names=("who", None))
    group.create_array("who", shape=(3,), dtype=str, dimension_names=("who",))[:] = np.array(names, object)
    return Input(uri="x.zarr", array="x", **keys).open()


def test_labels_in_the_order_of_storage_follow_the_chosen_samples():
    np.save("l.npy", np.array([10, 11, 12]))
    assert labels_of(_source(samples=["c", "a"]), 0, Place("l.npy")).tolist() == [12, 10]
    with pytest.raises(InputError, match=r"shape \(3,\), but there are 2 samples"):
        read_labels("l.npy", None, 2)


def test_labels_are_found_by_name():
    Path("t.csv").write_text(TABLE + "d,x,\n")  # an empty cell of a sample that is not there
    place = Place("t.csv", column="sex, at birth")
    assert labels_of(_source(), 0, place, "id").tolist() == ["m", "f", "f"]
    assert labels_of(_source(samples=["c", "a"]), 0, place, "id").tolist() == ["f", "m"]


@pytest.mark.parametrize(
    ("names", "text", "sentence"),
    [
        ("xay", TABLE, "t.csv: has no row for 2 of 3 samples in column 'id': 'x', 'y'"),
        ("abc", TABLE + "a,m,again\n", "t.csv: line 6 has 'a' of column 'id' again"),
        ("abc", TABLE.replace("none", ""), "t.csv: line 3 has 'a' of column 'id' without diagnosis"),
        ("abc", TABLE.replace("id", "ids"), "has no column 'id'"),
    ],
)
def test_names_that_find_no_label(names, text, sentence):
    Path("t.csv").write_text(text)
    with pytest.raises(InputError) as error:
        labels_of(_source(list(names)), 0, Place("t.csv", column="diagnosis"), "id")
    assert sentence in str(error.value)
    np.save("x.npy", np.zeros((3, 4)))
    with pytest.raises(InputError, match=r"the samples of x\.npy have no names to find there\n.*input\.sample_names"):
        labels_of(Input(uri="x.npy").open(), 0, Place("t.csv", column="diagnosis"), "id")


def _names(source, axis):
    with source.open() as reader:
        found = reader.coordinate(axis)
        return None if found is None else np.asarray(found.values[...]).tolist()


def test_names_from_files_become_coordinates():
    np.save("x.npy", np.zeros((3, 4)))
    Path("samples.tsv").write_text("id\tage\ns2\t1\ns1\t2\ns2\t3\n")
    Path("features.txt").write_text("g1\ng2\ng3\ng4\n")
    keys = {"sample_names": SampleNames(uri="samples.tsv", column="id"), "feature_names": Names(uri="features.txt")}
    source = Input(uri="x.npy", **keys).open()
    assert source.layout.dims == ("sample", "feature")
    assert _names(source, 0) == ["s2", "s1", "s2"]
    assert _names(source, 1) == ["g1", "g2", "g3", "g4"]
    assert source.notes == ("input.sample_names: 's2' name more than one sample",)
    assert _names(Input(uri="x.npy", samples=["s1", 0], **keys).open(), 0) == ["s1", "s2"]


def test_names_from_a_file_replace_those_of_the_input():
    Path("n.txt").write_text("x\ny\nz\n")
    source = _source(sample_names=SampleNames(uri="n.txt"))
    assert source.layout.dims[0] == "who"
    assert _names(source, 0) == ["x", "y", "z"]
    assert source.notes == ("input.sample_names: the names in n.txt replace those that x.zarr:x has",)


def test_names_that_do_not_fit():
    Path("n.txt").write_text("x\ny\n")
    np.save("x.npy", np.zeros((3, 4, 5)))
    with pytest.raises(InputError, match=r"n\.txt: holds labels of shape \(2,\), but there are 3 samples") as error:
        Input(uri="x.npy", sample_names=SampleNames(uri="n.txt")).open()
    assert error.value.key == "input.sample_names"
    with pytest.raises(InputError, match=r"x\.npy: has 2 axes of features, and input\.feature_names is for one"):
        Input(uri="x.npy", feature_names=Names(uri="n.txt")).open()


@pytest.mark.filterwarnings("ignore:Writing zarr v2:UserWarning")
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_a_categorical_column_of_anndata_is_its_names(suffix):
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    kinds = {"kind": ["b", "a", "ä"], "number": [3, 1, 3], "gap": ["b", None, "a"]}
    obs = pandas.DataFrame({name: pandas.Categorical(of) for name, of in kinds.items()}, index=["x", "y", "z"])
    cells, place = anndata.AnnData(np.ones((3, 2), "f4"), obs=obs), f"a.{suffix}"
    cells.write_h5ad(place) if suffix == "h5ad" else cells.write_zarr(place)
    assert read_labels(place, "obs/kind", 3).tolist() == ["b", "a", "ä"]
    assert read_labels(place, "/obs/number", 3).tolist() == ["3", "1", "3"]
    with pytest.raises(InputError, match=f"a.{suffix}: number 1 of the samples has no category in obs/gap"):
        read_labels(place, "obs/gap", 3)
    with pytest.raises(InputError, match=r"holds labels of shape \(3,\), but there are 4"):
        read_labels(place, "obs/kind", 4)
    with pytest.raises(InputError, match="has no array 'obs/kinds'"):
        read_labels(place, "obs/kinds", 3)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_a_categorical_column_of_an_old_anndata_is_its_names(suffix):
    file = h5py.File("a.h5ad", "w") if suffix == "h5ad" else zarr.open_group("a.zarr", mode="w", zarr_format=2)
    obs = file.create_group("obs")
    names, codes = np.array([1.5, 2.5]), np.array([1, 0, 1], "i1")
    if suffix == "h5ad":
        obs["__categories/kind"], obs["kind"] = names, codes
        obs["kind"].attrs["categories"] = obs["__categories/kind"].ref
        file.close()
    else:
        obs.create_group("__categories").create_array("kind", data=names)
        obs.create_array("kind", data=codes, attributes={"categories": "__categories/kind"})
    assert read_labels(f"a.{suffix}", "obs/kind", 3).tolist() == ["2.5", "1.5", "2.5"]
