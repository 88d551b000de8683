"""Carry out the cases by both codes, and print what differs."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from workflows.campaigns import same_bits
from workflows.campaigns.same_bits import cases, derived
from workflows.campaigns.same_bits.comparing import compare
from workflows.campaigns.same_bits.data import prepare
from workflows.campaigns.same_bits.places import ROOT, Failed, Place, check, code_of

SIDES = ("base", "here")
"""Folders of the code of the other commit and of this one, and of what each made."""
SHOWN = 4
"""Differences of a case that are printed."""
CASES = cases.CASES | derived.CASES


def code_here(place: Path) -> None:
    """The same of the working tree, so that nothing that is changed meanwhile is seen."""
    shutil.copytree(ROOT / "dpca", place / "dpca", ignore=shutil.ignore_patterns("__pycache__"))


def carried_out(name: str, place: Place) -> str:
    """Carry out a case by one code; what went wrong, if anything did."""
    try:
        place.path.mkdir(parents=True)
        CASES[name](place)
    except Failed as error:
        return str(error)
    except Exception as error:  # such as a key that a certificate does not have
        return f"{type(error).__name__}: {error}"
    return ""


def outcome(name: str, places: Sequence[Place]) -> tuple[int, str]:
    """Carry out a case by both codes; how many arrays and texts were compared, and "same" or what is the matter."""
    with ThreadPoolExecutor(len(places)) as pool:
        problems = list(pool.map(lambda place: carried_out(name, place), places))
    if any(problems):
        return 0, "\n".join(
            f"FAILED, {side}: {problem}" for side, problem in zip(SIDES, problems, strict=True) if problem
        )
    found = compare(*(place.path for place in places))
    if not found.n_compared:
        return 0, "FAILED: nothing to compare"
    if not found.differences:
        return found.n_compared, "same"
    more = [f"and {len(found.differences) - SHOWN} more"] if len(found.differences) > SHOWN else []
    return found.n_compared, "\n".join(["DIFFERS", *found.differences[:SHOWN], *more])


def campaign(base: str, root: Path, names: Sequence[str], keeps: bool) -> list[str]:
    """Carry out cases and print what came of each; returns those that are not the same.

    Parameters
    ----------
    base : the other commit
    root : a directory to work in
    keeps : whether what cases make stays there
    """
    codes = [root / "code" / side for side in SIDES]
    code_of(base, codes[0])
    code_here(codes[1])
    for code in codes:
        found = Place(root, code).python("import dpca; print(dpca.__file__)").strip()
        check(code in Path(found).parents, f"{found} is found, not the code in {code}")
    prepare(root / "data")
    wrong = []
    for name in names:
        n_compared, found = outcome(name, [Place(root / code.name / name, code) for code in codes])
        if not keeps:
            for side in SIDES:
                shutil.rmtree(root / side / name, ignore_errors=True)
        print(f"{name:<28}{n_compared:>5}  {found}".replace("\n", f"\n{'':<35}"), flush=True)
        if found != "same":
            wrong.append(name)
    return wrong


def main() -> bool:
    parser = argparse.ArgumentParser(
        description=same_bits.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", required=True, metavar="COMMIT", help="Whose results are the right ones.")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help="One of them; may be repeated.")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="A new one, in which all that was made stays.")
    given = parser.parse_args()
    if given.keep is not None and given.keep.exists():
        parser.error(f"--keep {given.keep}: exists already")
    kept = tempfile.TemporaryDirectory(prefix="dpca-same-") if given.keep is None else nullcontext(given.keep)
    names = [name for name in CASES if given.only is None or name in given.only]
    with kept as directory:
        try:
            wrong = campaign(given.base, Path(directory).resolve(), names, given.keep is not None)
        except Failed as error:
            raise SystemExit(str(error)) from None
    print(f"\n{len(names) - len(wrong)} of {len(names)} are the same" + (f"; not {', '.join(wrong)}" if wrong else ""))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
