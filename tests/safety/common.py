"""Data, a config and a result that the tests of safety share."""

from pathlib import Path

import numpy as np

from tests.commands.calls import dpca
from tests.stores import random_array

X = random_array(0, (6, 40), "f8")


def config(uri, *lines):
    Path("c.yaml").write_text(
        "\n".join([f"input: {{uri: {uri}}}", "model: {n_components: 2}", "output: {path: r}", *lines])
    )
    return "c.yaml"


def a_finished_run():
    np.save("x.npy", X)
    np.save("new.npy", X + 1)
    assert dpca("run", config("x.npy"), "--keep-ledger") == 0
