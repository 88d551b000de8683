import pytest

from tests.clusters import local_cluster


@pytest.fixture
def cluster(tmp_path):
    """Of two workers in this process; what they are sent is pickled, as to any other."""
    with local_cluster(tmp_path, processes=False, protocol="tcp") as started:
        yield started
