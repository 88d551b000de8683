"""Carry out the campaign, and print its tables."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict

from workflows.campaigns import faults
from workflows.campaigns.faults.campaign import CELLS, campaign
from workflows.campaigns.faults.disturbances import FAULTS
from workflows.campaigns.faults.every_file import every_file
from workflows.campaigns.faults.subjects import SUBJECTS

COLUMNS = ("runs", "struck", "same bits", "refused", "lost", "falsified")


def as_table(first: str, rows: dict[str, Counter[str]]) -> str:
    lines = [f"| {first} | {' | '.join(COLUMNS)} |", f"|{' --- |' * (1 + len(COLUMNS))}"]
    lines += [f"| {name} | {' | '.join(str(row[column]) for column in COLUMNS)} |" for name, row in rows.items()]
    return "\n".join(lines)


def main() -> bool:
    parser = argparse.ArgumentParser(description=faults.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=len(CELLS), help="By default one of each cell.")
    parser.add_argument("--jobs", type=int, default=2, help="Runs at a time.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--every-file",
        type=int,
        metavar="MOMENTS",
        help="Instead: kill each command at so many moments, and damage each kind of file that it leaves.",
    )
    parser.add_argument("--only", type=int, help="The number of a single run, to repeat it.")
    given = parser.parse_args()
    numbers = range(given.runs) if given.only is None else [given.only]
    by_fault, by_subject = (defaultdict[str, Counter[str]](Counter) for _ in range(2))
    if given.every_file:
        outcomes, repeat = every_file(given.every_file, given.jobs, given.only), f"--every-file {given.every_file}"
    else:
        outcomes, repeat = campaign(numbers, given.seed, given.jobs), f"--seed {given.seed}"
        by_fault |= {fault: Counter() for fault in FAULTS}
        by_subject |= {subject: Counter() for subject in SUBJECTS}
    for one in outcomes:
        for row in (by_fault[one.fault.partition(";")[0]], by_subject[one.subject]):
            row.update(["runs", *["struck"] * one.struck, one.verdict.partition(":")[0]])
        struck = "struck" if one.struck else "not struck"
        print(f"{one.number} | {one.subject} | {one.fault} | {struck} | {one.verdict}", file=sys.stderr, flush=True)
        if one.verdict not in ("same bits", "refused") or given.only is not None:
            print(
                f"{one.said}-- repeat it: python -m workflows.campaigns.faults {repeat} --only {one.number}\n",
                file=sys.stderr,
                flush=True,
            )
    if given.only is None:
        print(as_table("what happened", by_fault), as_table("to", by_subject), sep="\n\n")
    return any(row["lost"] or row["falsified"] for row in by_fault.values())


if __name__ == "__main__":
    sys.exit(main())
