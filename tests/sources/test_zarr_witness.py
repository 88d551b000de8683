"""A Zarr array in another process, which may not see what the one saw that sent it there."""

import os
import pickle
import shutil

import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, ZipStore

from dpca import PCA, KernelPCA
from dpca.errors import NotSeenError
from dpca.sources import as_source
from tests.clusters import local_cluster
from tests.stores import random_array

X = random_array(0, (12, 60), "f4")


def stored(path, **how):
    array = zarr.create_array(path, data=X, chunks=(12, 20), **how)
    return zarr.open_array(array.store, path=array.path, mode="r")


def values(source):
    with source.open() as reader:
        return np.array(reader.read(tuple(slice(0, length) for length in source.layout.shape)))


def sent(source):
    return pickle.loads(pickle.dumps(source))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: shutil.rmtree("x.zarr"), "there is no such array"),
        (lambda: [shutil.rmtree("x.zarr"), os.mkdir("x.zarr")], "there is no such array"),
        (lambda: [shutil.rmtree("x.zarr"), os.rename("other.zarr", "x.zarr")], "another array"),
        (lambda: [os.remove(path) for path in chunks()], "its chunk .* is not there"),
    ],
)
def test_what_is_not_seen_there_is_an_error_and_not_the_fill_value(change, said, zarr_format):
    zarr.create_array("other.zarr", shape=(12, 60), chunks=(12, 30), dtype="f4", zarr_format=zarr_format)
    source = sent(as_source(stored("x.zarr", zarr_format=zarr_format)))
    change()
    with pytest.raises(NotSeenError, match=said) as caught:
        values(source)
    assert str(os.path.abspath("x.zarr")) in str(caught.value)


def chunks():
    return [
        os.path.join(folder, name)
        for folder, _, names in os.walk("x.zarr")
        for name in names
        if not name.startswith((".z", "zarr"))
    ]


@pytest.mark.parametrize("kind", [LocalStore, ZipStore])
def test_a_relative_path_means_the_same_elsewhere(kind, tmp_path, monkeypatch):
    store = LocalStore("x.zarr") if kind is LocalStore else ZipStore("x.zip", mode="w")
    array = zarr.create_array(store, data=X, chunks=(12, 20))
    if kind is ZipStore:
        store.close()
        array = zarr.open_array(ZipStore("x.zip", mode="r"), mode="r")
    source = pickle.dumps(as_source(array))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    np.testing.assert_array_equal(values(pickle.loads(source)), X)


def test_chunks_that_nobody_wrote_are_still_the_fill_value():
    array = zarr.create_array("x.zarr", shape=(12, 60), chunks=(12, 20), dtype="f4", fill_value=7)
    assert (values(sent(as_source(array))) == 7).all()
    array[:, :20] = X[:, :20]
    found = values(sent(as_source(array)))
    np.testing.assert_array_equal(found[:, :20], X[:, :20])
    assert (found[:, 20:] == 7).all()


def test_an_array_in_memory_travels():
    source = sent(as_source(zarr.create_array({}, data=X, chunks=(12, 20))))
    np.testing.assert_array_equal(values(source), X)


HIDE = "import sys; sys.addaudithook(lambda event, arguments: (_ for _ in ()).throw(FileNotFoundError(2, 'No such file or directory', arguments[0])) if event == 'open' and 'hidden' in str(arguments[0]) else None)"


@pytest.mark.long
def test_workers_that_do_not_see_it_are_named(tmp_path, monkeypatch):
    """Workers on which opening the files fails, as on hosts without the mount."""
    os.makedirs("hidden")
    array = stored("hidden/x.zarr")
    expected = PCA(3).fit(array)
    with local_cluster(tmp_path / "dask") as cluster, cluster.get_client() as client:
        found = PCA(3, client=client).fit(zarr.open_array("hidden/x.zarr", mode="r"))
        np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-6)
        client.run(exec, HIDE)
        for x in (array, stored("hidden/y.zarr")):  # which workers saw before, and did not
            for apply in (PCA(3, client=client).fit, KernelPCA(3, client=client).fit, found.transform):
                with pytest.raises(NotSeenError, match=r"worker tcp://127\.0\.0\.1:\d+ on .*hidden/[xy]\.zarr"):
                    apply(x)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_chunk_that_is_lost_on_the_way_is_an_error_where_others_are_there(lazy):
    array = stored("x.zarr")
    source = sent(as_source(da.from_zarr(array) if lazy else array))
    os.remove(chunks()[-1])
    with pytest.raises(NotSeenError, match=r"chunk c/0/\d is not there"):
        values(source)
