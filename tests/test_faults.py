"""A short campaign of faults; `make faults` is the long one."""

import pytest

from workflows.campaigns.faults import campaign

FAULTS = ("kill -9 within a write", "two runs at a time, one with --overwrite", "a chunk of the result that is gone")


@pytest.mark.long
def test_a_short_campaign_loses_nothing():
    table = campaign(1, seed=7, faults=FAULTS, n_chunks=2)
    assert [row["runs"] for row in table.values()] == [1, 1, 1]
    assert not [fault for fault, row in table.items() if row["lost"]]
    assert table[FAULTS[0]]["same bits"] == 1
