import pytest

from tests.commands.calls import given


@pytest.fixture
def config():
    given()
    return "c.yaml"
