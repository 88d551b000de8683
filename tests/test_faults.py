"""A short campaign of faults; `make soak` is the long one."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from workflows.campaigns.faults.campaign import CELLS, campaign, drawn, verdict_of
from workflows.campaigns.faults.cases import Case, Undisturbed, bits
from workflows.campaigns.faults.disturbances import FAULTS
from workflows.campaigns.faults.subjects import SUBJECTS, Subject

RUNS = [
    ("run", "kill -9 within a write"),
    ("run, over an older result", "two at a time, one with --overwrite"),
    ("job array", "stopped, and goes on late"),
    ("transform", "a result that it reads damaged"),
]


@pytest.mark.long
def test_a_short_campaign_loses_nothing():
    found = list(campaign(range(len(RUNS)), seed=4, jobs=2, cells=RUNS))
    assert {one.verdict for one in found} <= {"same bits", "refused"}, "".join(one.said for one in found)
    assert found[0].struck
    assert found[0].verdict == "same bits"


class Ended:
    """A process that ended, well or with a sentence."""

    ended_rightly, words = True, "run"

    def __init__(self, ended_well):
        self.ended_well = ended_well

    def end(self):
        return 0 if self.ended_well else 1


@dataclass(frozen=True)
class Made(Subject):
    """A command that makes a file, which then holds what the test says."""

    content: str = "right"
    well: bool = True
    needs_repair: bool = False

    def go_on(self, case):
        if self.needs_repair and case.damaged:
            return Ended(False)
        (case.place / self.made).write_text(self.content)
        return Ended(self.well)


@pytest.mark.parametrize(
    ("subject", "damaged", "verdict"),
    [
        (Made("", "m"), False, "same bits"),
        (Made("", "m"), True, "same bits"),
        (Made("", "m", needs_repair=True), True, "refused"),
        (Made("", "m", content="other"), False, "falsified"),
        (Made("", "m", content="other"), True, "falsified"),
        (Made("", "m", well=False), False, "lost"),
        (Made("", "m", well=False), True, "lost"),
    ],
)
def test_a_campaign_tells_what_came_of_a_run(subject, damaged, verdict):
    Path("m").write_text("right")
    case = Case(Path.cwd(), subject, Undisturbed(bits(Path("m")), {}, 1.0, 1, 1), Random(0))
    Path("m").unlink()
    Path("read").write_text("of the input")
    if damaged:
        case.damage(case.place / "read")
    assert verdict_of(case).partition(":")[0] == verdict


def test_a_campaign_has_every_command_and_every_fault_and_each_cell_once_a_round():
    assert {subject for subject, _ in CELLS} == SUBJECTS.keys()
    assert {fault for _, fault in CELLS} == FAULTS.keys()
    rounds = [
        Counter(drawn(seed=0, number=number) for number in range(start, start + len(CELLS)))
        for start in (0, len(CELLS))
    ]
    assert rounds == [Counter(CELLS)] * 2
    assert drawn(0, 1) != drawn(1, 1)
