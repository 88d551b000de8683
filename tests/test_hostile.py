"""A short campaign of damaged and made-up chunks; `python -m workflows.campaigns.hostile` is the long one."""

from workflows.campaigns.hostile import FORMATS, campaign


def test_a_short_campaign_loses_nothing():
    table = campaign(6 * len(FORMATS), seed=7, report=False)
    assert table.total() == 6 * len(FORMATS)
    assert not table["lost"]
    assert table["right error"] > table.total() // 2
