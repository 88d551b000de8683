"""A short campaign of mutants, on a module of a few lines; `make mutants` is the long one."""

import ast
from pathlib import Path

import pytest

import dpca
from workflows.campaigns.mutants.guards import guards, marked, without

SOURCE = '''
def finish(begun, now, lock, place, document):
    """Publish."""
    if now.run != begun.run:
        raise LedgerError("another run")
    if differences(begun.config, now.config) or begun.size > now.size:
        return
    lock.check()
    with lock, writing(place):
        durable.remove(place / "old")
        os.fsync(place.number)
        durable.write(place, document)


def fingerprint(file):
    return {"uri": file.path, "bytes": file.size,
            "modified_ns": file.time}
'''
GONE = {
    "now.run != begun.run": "if False:",
    "differences(begun.config, now.config)": "if [] or begun.size > now.size:",
    "lock.check()": "    pass\n    with lock",
    "lock": "with __import__('contextlib').nullcontext(), writing(place):",
    'durable.remove(place / "old")': "        pass\n        os.fsync",
    "os.fsync(place.number)": "        pass\n        durable.write",
    "durable.write": "durable.write_unflushed(place, document)",
    '"bytes": file.size': '{"uri": file.path,',
    '"modified_ns": file.time': "}",
}


def test_what_guards_a_result_is_found_and_can_be_removed():
    found = {guard.text: guard for guard in guards("dpca/store/finish.py", SOURCE)}
    assert list(found) == list(GONE)
    for text, guard in found.items():
        assert GONE[text] in without(SOURCE, guard)
        ast.parse(without(SOURCE, guard))
    assert found["lock.check()"].name == "dpca/store/finish.py:finish: lock.check()"


def test_a_marked_source_says_which_guards_were_reached():
    numbered = dict(enumerate(guards("dpca/store/finish.py", SOURCE)))
    reached = []
    space = {"say": reached.append, "LedgerError": RuntimeError}
    exec(marked(SOURCE, numbered, "say"), space)
    (first,) = (number for number, guard in numbered.items() if guard.text == "now.run != begun.run")
    begun, now = (type("Begun", (), {"run": word}) for word in "ab")
    with pytest.raises(RuntimeError, match="another run"):
        space["finish"](begun, now, None, None, None)
    assert reached == [first]


def test_guards_of_dpca_are_each_one_line_of_the_table_and_leave_python_behind():
    root = Path(dpca.__file__).parents[1]
    names = set()
    for name in ("dpca/system/durable.py", "dpca/system/lock.py"):
        source = (root / name).read_text()
        found = guards(name, source)
        for guard in found:
            ast.parse(without(source, guard))
        names |= {guard.name for guard in found}
    assert {
        "dpca/system/durable.py:Disk.write: os.fsync(file.fileno())",
        'dpca/system/durable.py:read_checked: stored.get("sha256") != digest(stored.get("document"))',
        "dpca/system/lock.py:Lock._make: durable.link(complete, named)",
    } <= names
