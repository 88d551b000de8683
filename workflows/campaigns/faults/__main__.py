"""Carry out the campaign, and print its tables."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from workflows.campaigns import faults
from workflows.campaigns.faults.campaign import CELLS, campaign
from workflows.campaigns.faults.disturbances import FAULTS
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
    parser.add_argument("--only", type=int, help="The number of a single run, to repeat it.")
    given = parser.parse_args()
    numbers = range(given.runs) if given.only is None else [given.only]
    by_fault: dict[str, Counter[str]] = {fault: Counter() for fault in FAULTS}
    by_subject: dict[str, Counter[str]] = {subject: Counter() for subject in SUBJECTS}
    for one in campaign(numbers, given.seed, given.jobs):
        for row in (by_fault[one.fault], by_subject[one.subject]):
            row.update(["runs", *["struck"] * one.struck, one.verdict.partition(":")[0]])
        struck = "struck" if one.struck else "not struck"
        print(f"{one.number} | {one.subject} | {one.fault} | {struck} | {one.verdict}", file=sys.stderr, flush=True)
        if one.verdict not in ("same bits", "refused") or given.only is not None:
            print(
                f"{one.said}"
                f"-- repeat it: python -m workflows.campaigns.faults --seed {given.seed} --only {one.number}\n",
                file=sys.stderr,
                flush=True,
            )
    if given.only is None:
        print(as_table("what happened", by_fault), as_table("to", by_subject), sep="\n\n")
    return any(row["lost"] or row["falsified"] for row in by_fault.values())


if __name__ == "__main__":
    sys.exit(main())
