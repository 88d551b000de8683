"""Zarr in an object store, a server of S3's protocol on loopback, through fsspec and through obstore."""

import asyncio
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore, WrapperStore

from dpca.sources import open_joined, open_source
from dpca.sources.zarr_array import ZarrSource
from dpca.sources.zarr_store import REQUESTS
from tests.commands.calls import X, dpca
from tests.stores import bits

KEY, SECRET, REGION = "AKIDNOBODYMAYSEE", "secretthatnobodymaysee", "eu-test-1"


@pytest.fixture(scope="module")
def endpoint():
    """Its address; a bucket is in it."""
    server = pytest.importorskip("moto.server", reason="needs moto, flask and flask-cors").ThreadedMotoServer(
        "127.0.0.1", 0
    )
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(params=["fsspec", "obstore"])
def how(request, endpoint):
    """What a config says of the input, besides its URL and array."""
    if request.param == "fsspec":
        pytest.importorskip("s3fs")
        options = {"key": KEY, "secret": SECRET, "endpoint_url": endpoint, "client_kwargs": {"region_name": REGION}}
    else:
        pytest.importorskip("obstore")
        options = {
            "endpoint": endpoint,
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": REGION,
            "virtual_hosted_style_request": False,
            "client_options": {"allow_http": True},
        }
    return {"library": request.param, "storage_options": options}


@pytest.fixture(scope="module", autouse=True)
def stored(endpoint):
    import s3fs

    system = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=endpoint, client_kwargs={"region_name": REGION})
    system.mkdir("climate")
    local = MemoryStore()
    group = zarr.create_group(local)
    group.create_array("field", data=X, chunks=(5, 20, 7))
    group.create_array("sharded", data=X, chunks=(5, 20, 7), shards=(10, 20, 14))
    group.create_array("holes", shape=X.shape, chunks=(12, 20, 7), dtype="f4", fill_value=2)[..., :7] = 1
    for key, value in local._store_dict.items():
        system.pipe_file(f"climate/x.zarr/{key}", value.to_bytes())
        system.pipe_file(f"climate/y.zarr/{key}", value.to_bytes())


def config(how, array="field", **output):
    Path("c.yaml").write_text(
        "model: {n_components: 3}\n"
        f"input: {{uri: 's3://climate/x.zarr', array: {array}, library: {how['library']}, storage_options: "
        f"{how['storage_options']}}}\n"
        "output: {path: far}\n"
    )
    return "c.yaml"


def test_a_run_from_s3_has_the_bits_of_one_from_here(how):
    array = "sharded" if how["library"] == "fsspec" else "field"  # dpca asks either library in the same way
    zarr.create_array(
        "x.zarr", data=X, chunks=(5, 20, 7), shards=(10, 20, 14) if array == "sharded" else None, fill_value=0
    )
    assert dpca("run", config(how, array)) == 0
    assert dpca("run", "c.yaml", "--set", "input={uri: x.zarr}", "--set", "output.path=near") == 0
    assert bits("far") == bits("near")


def test_arrays_at_several_urls_are_joined(how):
    source = open_joined(
        ["s3://climate/x.zarr", "s3://climate/y.zarr"], opened=partial(open_source, array="field", **how)
    )
    with source.open() as reader:
        reader.will_read([(slice(0, 24), slice(0, 20), slice(0, 30))])
        read = reader.read((slice(0, 24), slice(0, 20), slice(0, 30)))
        np.testing.assert_array_equal(read, np.concatenate([X, X]))


def test_new_samples_from_s3(how):
    zarr.create_array("x.zarr", data=X, chunks=(5, 20, 7))
    assert dpca("run", config(how), "--set", "input={uri: x.zarr}", "--set", "output.path=near") == 0
    Path("new.yaml").write_text(Path("c.yaml").read_text().splitlines()[1])
    assert dpca("transform", "near", "new.yaml", "--out", "scores.zarr") == 0
    scores = zarr.open_array("near/result.zarr/scores", mode="r")[...]
    np.testing.assert_allclose(zarr.open_array("scores.zarr/scores", mode="r")[...], scores, rtol=1e-4, atol=1e-4)


def test_nothing_that_is_written_or_said_holds_a_credential(how, capfd):
    assert dpca("run", config(how), "--keep-ledger", "--debug") == 0
    for uri in ("climate/nowhere.zarr", f"{KEY}:{SECRET}@climate/nowhere.zarr", "nobucket/x.zarr"):
        assert dpca("run", "c.yaml", "--set", f"input.uri=s3://{uri}", "--set", "output.path=r") == 2
    said = "".join(capfd.readouterr())
    assert "nowhere" in said
    written = b"".join(path.read_bytes() for path in Path("far").rglob("*") if path.is_file())
    for word in (KEY, SECRET):
        assert word not in said
        assert word.encode() not in written


def test_chunks_that_were_never_written_are_counted(how):
    source = open_source("s3://climate/x.zarr", "holes", storage_options=how["storage_options"], library=how["library"])
    with source.open() as reader:
        reader.will_read([(slice(0, 12), slice(0, 20), slice(0, 30))])
        found = reader.read((slice(0, 12), slice(0, 20), slice(0, 30)))
        assert reader.absent_chunks == 4
    assert (found[..., :7] == 1).all()
    assert (found[..., 7:] == 2).all()


class FarStore(WrapperStore):
    """Answers the first request for a chunk when as many are under way as there may be."""

    def __init__(self, store):
        super().__init__(store)
        self.asked, self.enough = [], asyncio.Event()

    async def get(self, key, prototype, byte_range=None):
        if "c/" in key:
            self.asked.append(key)
            if len(self.asked) == REQUESTS:
                self.enough.set()
            if len(self.asked) == 1:
                await asyncio.wait_for(self.enough.wait(), 60)
        return await self._store.get(key, prototype, byte_range)


@pytest.fixture
def far():
    """An array of 256 chunks, its values, and the store that is asked for it."""
    values = np.arange(8 * 4096.0).reshape(8, 4096)
    zarr.create_array(memory := MemoryStore(), data=values, chunks=(8, 16))
    array = zarr.open_array(FarStore(memory), mode="r")
    return ZarrSource(array), values, array.store


def test_as_many_requests_as_there_may_be_are_under_way_at_a_time(far):
    source, values, store = far
    regions = [(slice(0, 8), slice(start, start + 32)) for start in range(0, 4096, 32)]
    with source.open() as reader:
        reader.will_read(regions)
        for number, region in enumerate(regions):
            np.testing.assert_array_equal(reader.read(region), values[region])
            assert len(store.asked) == min(256, 2 * (number + 1) + REQUESTS)
    assert len(set(store.asked)) == 256


def test_what_is_not_needed_any_more_is_given_up(far):
    source, _, store = far
    with source.open() as reader:
        reader.will_read([(slice(0, 8), slice(0, 4096))])
        reader.read((slice(0, 8), slice(0, 16)))
    assert len(store.asked) == 1 + REQUESTS


def test_shards_are_asked_for_ahead_where_zarr_asks_for_them_whole():
    """Not those that end beyond the array by a chunk or more, and not parts of any."""
    values = np.arange(10 * 70.0).reshape(10, 70)
    zarr.create_array(memory := MemoryStore(), data=values, chunks=(10, 8), shards=(10, 32))
    store = FarStore(memory)
    store.enough.set()
    source = ZarrSource(zarr.open_array(store, mode="r"))
    store = source._array.store
    store.enough.set()
    with source.open() as reader:
        regions = [(slice(0, 10), slice(start, min(70, start + 32))) for start in range(0, 70, 32)]
        reader.will_read(regions)
        for region in regions:
            np.testing.assert_array_equal(reader.read(region), values[region])
        assert not reader._store._ahead
        reader.will_read([(slice(0, 10), slice(0, 16))])
        assert not reader._store._ahead
    assert store.asked.count("c/0/0") == store.asked.count("c/0/1") == 1
    assert "chunks asked for ahead" in source.held((10, 32))
    assert "chunks asked for ahead" not in source.held((10, 16))


def test_what_is_asked_for_ahead_is_in_the_plan(far):
    assert far[0].held((8, 16))["chunks asked for ahead"] == REQUESTS * 8 * 16 * 8


def test_a_request_that_fails_ahead_is_tried_again(far):
    source, values, store = far
    answer, failed = store._store.get, []

    async def failing(key, *arguments):
        if key.endswith("c/0/3") and not failed:
            failed.append(key)
            raise ConnectionResetError("the peer has gone")
        return await answer(key, *arguments)

    store._store.get = failing
    with source.open() as reader:
        reader.will_read([(slice(0, 8), slice(0, 4096))])
        np.testing.assert_array_equal(reader.read((slice(0, 8), slice(0, 4096))), values)
        assert reader.retries == 1
