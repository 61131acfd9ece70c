"""docs/promises.md: every test that it names exists under that name."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
TEXT: Final = (ROOT / "docs/promises.md").read_text()
ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|") and not line.startswith(("| ---", "| promise |"))
]
NAMED: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def named_in(file: Path) -> frozenset[str]:
    """Return the test functions and the state machines at the top level of a file."""
    names = set[str]()
    for node in ast.parse(file.read_text()).body if file.is_file() else ():
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(attr="TestCase")):
                names.add(name)
            case _:
                pass
    return frozenset(name for name in names if name.lower().startswith("test"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_promise_names_tests_that_exist(row: list[str]) -> None:
    promise, tests = row
    named = NAMED.findall(tests)

    assert promise
    assert named
    assert NAMED.sub("", tests).replace("<br>", "").strip() == ""
    assert [(file, name) for file, name in named if name not in named_in(ROOT / file)] == []


def test_no_promise_is_made_twice() -> None:
    promises = [row[0] for row in ROWS]

    assert len(promises) == len(set(promises))
    assert len(promises) > 0


def test_a_name_counts_only_where_its_test_is() -> None:
    here = Path(__file__)

    assert test_no_promise_is_made_twice.__name__ in named_in(here)
    assert "named_in" not in named_in(here)
    assert "TestLedger" in named_in(here.parent / "lifecycle/test_ledger_machine.py")
    assert named_in(here.parent / "test_missing.py") == frozenset()
