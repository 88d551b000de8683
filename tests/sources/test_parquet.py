"""Tables of Parquet: types, nulls, names."""

import numpy as np
import pytest

from dpca.errors import DataError, InputError
from dpca.sources import open_source
from tests.sources.test_zarr_array import whole

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


def test_columns_are_the_numbers_and_the_index_is_the_names():
    table = pd.DataFrame(
        {"a": [1, 2, 3], "who": list("xyz"), "b": [True, False, True], "c": pd.array([1, None, 3], "Int32"), "d": np.float32([0.5, 1, 2])},
        index=["p", "q", "r"],
    )  # fmt: skip
    table.to_parquet("x.parquet", row_group_size=2)
    source = open_source("x.parquet")
    np.testing.assert_array_equal(whole(source)[0], [[1, 1, 1, 0.5], [2, 0, np.nan, 1], [3, 1, 3, 2]])
    with source.open() as reader:
        assert [*reader.coordinate(0).values[...]] == ["p", "q", "r"]
        assert [*reader.coordinate(1).values[...]] == ["a", "b", "c", "d"]
    assert source.layout.dtype == "f8"
    assert "columns of text are left out: who" in source.layout.remarks[0]


def test_single_precision_stays():
    pd.DataFrame(np.ones((4, 3), "f4"), columns=list("abc")).to_parquet("x.parquet")
    assert open_source("x.parquet").layout.dtype == "f4"


def test_what_float64_does_not_hold_is_refused():
    pd.DataFrame({"a": [2**53 + 1, 2], "b": [1, 2]}).to_parquet("x.parquet")
    with pytest.raises(DataError, match=r"column 'a' has integers beyond 2\^53"):
        whole(open_source("x.parquet"))
    pd.DataFrame({"a": ["x", "y"]}).to_parquet("y.parquet")
    with pytest.raises(InputError, match="no column holds numbers"):
        open_source("y.parquet")
