"""A short campaign of faults; `make faults` is the long one."""

from tests.faults import FAULTS, campaign


def test_a_short_campaign_loses_nothing(tmp_path):
    table = campaign(len(FAULTS), seed=7, report=False)
    assert sum(row["runs"] for row in table.values()) == len(FAULTS)
    assert not [fault for fault, row in table.items() if row["lost"]]
    assert sum(row["same bits"] for row in table.values()) > len(FAULTS) // 2
