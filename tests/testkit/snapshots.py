"""Wording under test, kept in one file per surface: `tests/snapshots/status.txt` and its kin.

A test states facts itself (exit codes, findings, that a secret is absent) and hands the words to
`snapshot`. They are compared exactly; `pytest --update-snapshots` rewrites the entries of the tests
it runs and removes those that no test uses any more. An entry is a line `=== MODULE: TEST` and the
text below it.
"""

import difflib
import fcntl
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parents[1] / "snapshots"
HOW: Final = "if the new wording is meant: pytest --update-snapshots"
_HEAD: Final = re.compile(r"^=== (.+)\n", re.MULTILINE)


def key_of(test: pytest.Item) -> str:
    """Return the name of a test's entries."""
    return f"{test.path.stem}: {test.name}"


def read(file: Path) -> dict[str, str]:
    """Return the entries of a file, which need not exist."""
    text = file.read_text("utf-8") if file.exists() else ""
    _, *parts = _HEAD.split(text)
    return {
        key: body.removesuffix("\n").removesuffix("\n")
        for key, body in zip(parts[::2], parts[1::2], strict=True)
    }


def unused(collected: Collection[str], folder: Path = FOLDER) -> list[str]:
    """Return the entries that belong to no collected test, each with its file."""
    return [
        f"{file.name}: {key}"
        for file in sorted(folder.glob("*.txt"))
        for key in read(file)
        if key not in collected
    ]


def change(file: Path, how: Callable[[dict[str, str]], Mapping[str, str]]) -> None:
    """Rewrite the entries of a file, sorted; several processes may do so at once."""
    with file.open("a", encoding="utf-8") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        entries = sorted(how(read(file)).items())
        opened.truncate(0)
        opened.write("\n".join(f"=== {key}\n{text}\n" for key, text in entries))


class Snapshot:
    """Compares what one test shows with what its entries say."""

    def __init__(self, key: str, *, update: bool, folder: Path = FOLDER) -> None:
        self._key = key
        self._update = update
        self._folder = folder
        self._used: set[str] = set()

    def __repr__(self) -> str:
        return f"<Snapshot {self._key!r} used={sorted(self._used)}>"

    def __call__(self, surface: str, *said: object, **varying: object) -> None:
        """Compare the texts, one below the other, with the entry of this test in a surface's file.

        Values that vary, such as a temporary path, are written as their name: `home=path` turns
        the path into `<home>`.
        """
        if surface in self._used:
            raise AssertionError(f"a test has one entry in {surface}.txt: pass all texts at once")
        self._used.add(surface)
        text = "\n".join(str(each) for each in said).rstrip("\n")
        for name, value in sorted(varying.items(), key=lambda item: -len(str(item[1]))):
            text = text.replace(str(value), f"<{name}>")
        file = self._folder / f"{surface}.txt"
        if self._update:
            change(file, lambda entries: {**entries, self._key: text})
        elif (expected := read(file).get(self._key)) != text:
            raise AssertionError(self._difference(file.name, expected or "", text))

    def finish(self) -> None:
        """Fail for entries that the test, which has passed, did not use; or remove them."""
        for file in sorted(self._folder.glob("*.txt")):
            if file.stem in self._used or self._key not in read(file):
                continue
            if not self._update:
                raise AssertionError(f"{file.name} has an entry that {self._key} does not use")
            change(file, self._without)

    def _without(self, entries: dict[str, str]) -> dict[str, str]:
        return {key: text for key, text in entries.items() if key != self._key}

    def _difference(self, name: str, expected: str, text: str) -> str:
        lines = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), name, "shown", lineterm=""
        )
        return "\n".join([f"{name} differs; {HOW}", *lines])
