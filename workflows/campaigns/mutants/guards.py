"""The guards in the source of dpca, and the source without one of them.

A guard is what stands between a user and a result that is wrong or lost: a flush, a step on the disk that has its place in an order,
a lock, a checksum, a comparison, a refusal, and the facts that are compared. They are found by their names, so that a new one is
found, too; `BY_HAND` has those that no name tells.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

NOT_HERE = ("dpca/cli/", "dpca/config/", "dpca/report/", "dpca/numerics/", "dpca/derived/", "dpca/planning/advice")
"""Rooms where files of a result are neither written nor compared."""
FLUSHES = {"fsync", "flush_path"}
UNFLUSHED = {"durable.write": "durable.write_unflushed", "durable.write_json": "durable.write_briefly"}
"""What writes the same, and does not flush it."""
STEPS = {"chmod", "discard", "forget", "lost", "remove", "rename", "replace", "rmdir", "tidy", "unlink"}
"""Names of calls that are statements of their own; so is all of `durable` and `DISK` that makes nothing."""
MAKING = re.compile(r"write\w*|make_\w+")
LOCKS = {"acquire", "release"}
CHECKS = re.compile(
    r".*(lock|mark|before|witness)\.check"
    r"|(.*\.)?_?check_(own|no_links?|free|still|unchanged|same_fit|absent|there|replaces_no_part)"
)
REFUSED = {"LedgerError", "LockedError", "Damaged", "OutputExistsError", "StorageError", "changed", "useless"}
"""What is raised where something would be lost or wrong."""
TRUSTED = re.compile(
    r"dpca/(store/(directory|ledger|packing|results|stored|synced|unfinished)|system/(durable|lock|scratch))\.py"
)
"""Where every error is such a one."""
COMPARED = re.compile(
    r"_?(.*fingerprint.*|.*sha256|.*digest.*|checksum|crc|boot|owner|numerics|format_version|run|identity|inventory"
    r"|modified.*|chunks_written|place_of|st_ino|st_dev|st_uid|st_nlink)",
    re.IGNORECASE,
)
"""Names of what is compared; in functions of `COMPARING`, and in the lock, every comparison counts."""
COMPARING = re.compile(r"_?(damage\w*|is_(of|own|ours)|check_(own|still|absent|there)|died_here|committed)")
ANSWERS = {
    "changes_of": "[]",
    "damage": "None",
    "damage_of": "None",
    "damage_of_any": "None",
    "differences": "[]",
    "forget_stale": "True",
    "stale": "[]",
    "self._alone": "True",
    "_died_here": "True",
    "self._moves": "False",
    "lock.held": "True",
    "self.held": "True",
}
"""What calls that look for a difference give where they find none."""
FACTS = re.compile(r"_?(fingerprint\w*|state|file_state|this_process|chunks_digest|numerics|now)")
"""Functions with facts that are compared elsewhere."""
FOLLOW = {"uri", "kind"}
"""Facts that tell nothing: where data lie is not compared, and of another format all other facts are others."""
BY_HAND = {
    "dpca/system/durable.py": (
        ('path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")', "path.unlink(missing_ok=True) or path"),
        ('"xb"', '"wb"'),
        ("flush=True, mode=mode", "flush=False, mode=mode"),
        ('write_json(path, {"sha256"', 'write_briefly(path, {"sha256"'),
    ),
    "dpca/system/lock.py": (("durable.link(complete, named)", "os.replace(complete, named) or True"),),
    "dpca/store/outputs.py": (("checksum=True", "checksum=False"), ('{"write_empty_chunks": True}', "{}")),
    "dpca/methods/copying.py": (('{"write_empty_chunks": True}', "{}"),),
}
"""What is replaced in a file, and by what: a file written in its place, chunks without a checksum, a lock that two may take."""

Piece = tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt, str]
"""Kind of a guard, where it begins and where it ends, and what takes its place."""


@dataclass(frozen=True)
class Guard:
    """A guard, as a piece of a source."""

    path: str
    function: str
    kind: str
    text: str
    """What is removed, on one line."""
    start: int
    end: int
    """Where it is in the source, in bytes."""
    new: str
    """What takes its place."""
    statement: int
    """Where the statement begins that it is in, in bytes."""
    repeated: int = 1
    """Its number among those of the same text in the function."""

    @property
    def name(self) -> str:
        number = f" #{self.repeated}" if self.repeated > 1 else ""
        return f"{self.path}:{self.function}: {self.text}{number}"


def guards(path: str, source: str) -> list[Guard]:
    """The guards in a file, in their order.

    Parameters
    ----------
    path : the name of the file in the repository, `dpca/system/lock.py`
    """
    if path.startswith(NOT_HERE):
        return []
    content, offset = source.encode(), _offsets(source)
    found: list[Guard] = []
    seen: dict[tuple[str, str], int] = {}

    def add(function: str, statement: ast.stmt, kind: str, start: int, end: int, new: str) -> None:
        if not any(start < one.end and one.start < end for one in found):
            text = " ".join(content[start:end].decode().split()).rstrip(",")
            seen[function, text] = seen.get((function, text), 0) + 1
            found.append(Guard(path, function, kind, text, start, end, new, offset(statement)[0], seen[function, text]))

    for function, statement in _statements(ast.parse(source)):
        for kind, first, last, new in _found(path, function, statement):
            start, end = offset(first)[0], offset(last)[1]
            if first is not last:  # an entry of a mapping, with the comma behind it
                end += content[end:].startswith(b",")
            add(function, statement, kind, start, end, new)
        start, end = offset(statement)
        for old, new in BY_HAND.get(path, ()) if not hasattr(statement, "body") else ():
            at = content.find(old.encode(), start, end)
            if at >= 0:
                add(function, statement, "by hand", at, at + len(old.encode()), new)
    return sorted(found, key=lambda guard: guard.start)


def without(source: str, guard: Guard) -> str:
    """The source without a guard."""
    content = source.encode()
    return (content[: guard.start] + guard.new.encode() + content[guard.end :]).decode()


def marked(source: str, numbered: dict[int, Guard], call: str) -> str:
    """The source with a call before each statement that has a guard.

    Parameters
    ----------
    numbered : guards of this source, by a number of their own
    call : the source of a function that is called with that number
    """
    marks: dict[int, list[int]] = {}
    for number, guard in numbered.items():
        marks.setdefault(guard.statement, []).append(number)
    offset = _offsets(source)

    class Marking(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.stmt):
                calls = [ast.parse(f"{call}({one})").body[0] for one in marks.pop(offset(node)[0], [])]
                super().generic_visit(node)
                return [*calls, node] if calls else node  # type: ignore[return-value]
            return super().generic_visit(node)

    return ast.unparse(Marking().visit(ast.parse(source)))


def _offsets(source: str):  # type: ignore[no-untyped-def]
    """A function that gives where a node begins and ends, in bytes."""
    lines = [0]
    for line in source.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def offset(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    return offset


def _statements(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Every statement, with the name of the function or class that it is in; those that it holds come after it."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, ast.stmt]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from walk(child, f"{function}.{child.name}".lstrip("."))
                continue
            if isinstance(child, ast.stmt):
                yield function, child
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield from walk(child, function)

    return walk(tree, "")


def _found(path: str, function: str, statement: ast.stmt) -> Iterator[Piece]:
    """The guards of one statement: comparisons before the refusals that they are in."""
    own = function.rpartition(".")[2]
    every = path == "dpca/system/lock.py" or COMPARING.fullmatch(own) is not None
    for expression in ast.iter_child_nodes(statement):
        if isinstance(expression, ast.expr | ast.withitem):
            for node in ast.walk(expression):
                yield from _compared(node, every)
                if isinstance(node, ast.Dict) and FACTS.fullmatch(own):
                    for key, value in zip(node.keys, node.values, strict=True):
                        if isinstance(key, ast.Constant) and key.value not in FOLLOW:
                            yield "fact", key, value, ""
    match statement:
        case ast.Expr(value=ast.Call(func=function_called) as call):
            called, head = ast.unparse(function_called), _head(call)
            if head in FLUSHES:
                yield "flush", statement, statement, "pass"
            elif called in UNFLUSHED and len(call.args) == 2:
                yield "flush", function_called, function_called, UNFLUSHED[called]
            elif head in LOCKS and "lock" in called:  # not that of memory
                yield "lock", statement, statement, "pass"
            elif CHECKS.fullmatch(called):
                yield "check", statement, statement, "pass"
            elif head in STEPS or (re.match(r"(durable|DISK)\.", called) and not MAKING.fullmatch(head)):
                yield "step", statement, statement, "pass"
            elif head == "update" and "digest" in called:
                yield "fact", statement, statement, "pass"
        case ast.Assign(targets=[target]) if FACTS.fullmatch(own) and isinstance(target, ast.Subscript):
            yield "fact", statement, statement, "pass"
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is None and re.search(r"lock|guard|phil", ast.unparse(item.context_expr)):
                    yield "lock", item.context_expr, item.context_expr, "__import__('contextlib').nullcontext()"
        case ast.If(test=test, body=[*_, ast.Raise(exc=ast.AST() as raised)], orelse=[]):
            if _head(raised) in REFUSED or TRUSTED.fullmatch(path):
                yield "refusal", test, test, "False"


def _compared(node: ast.AST, every: bool) -> Iterator[Piece]:
    """An expression, if it compares, or asks for a difference.

    Parameters
    ----------
    every : whether any comparison counts, whatever is compared
    """
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and not isinstance(node.left, ast.NamedExpr):
        equal = {ast.Eq: "True", ast.In: "True", ast.NotEq: "False", ast.NotIn: "False"}.get(type(node.ops[0]))
        if equal and (every or any(COMPARED.fullmatch(_head(one)) for one in (node.left, *node.comparators))):
            yield "comparison", node, node, equal
    elif isinstance(node, ast.Call):
        answer = ANSWERS.get(ast.unparse(node.func)) or ANSWERS.get(_head(node))
        if answer is not None:
            yield "comparison", node, node, answer


def _head(node: ast.AST) -> str:
    """The word by which what is compared or called is known: `run` of begun.run, document["run"] and document.get("run")."""
    match node:
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(word)), *_]):
            return word
        case ast.Call(func=function):
            return _head(function)
        case ast.Attribute(attr=word) | ast.Name(id=word) | ast.Subscript(slice=ast.Constant(value=str(word))):
            return word
        case ast.Subscript(value=inner):
            return _head(inner)
    return ""
