"""Snapshots are exact, change only when asked to, and have no entry that nothing uses."""

from pathlib import Path

import pytest

from tests.testkit.snapshots import FOLDER, HOW, Snapshot, change, key_of, read, unused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "status.txt").write_text("=== a: one\nfirst\n\nlast\n\n=== a: two\ntext\n")
    return tmp_path


def test_equal_text_passes_and_different_text_fails_with_the_difference(folder: Path) -> None:
    Snapshot("a: one", update=False, folder=folder)("status", "first", "", "last")

    with pytest.raises(AssertionError, match="-text\n\\+ text"):
        Snapshot("a: two", update=False, folder=folder)("status", " text")


def test_text_without_an_entry_fails_and_writes_nothing(folder: Path) -> None:
    with pytest.raises(AssertionError, match=HOW):
        Snapshot("a: three", update=False, folder=folder)("doctor", "new")

    assert [path.name for path in folder.iterdir()] == ["status.txt"]


def test_an_update_rewrites_one_entry_and_keeps_the_others(folder: Path) -> None:
    updating = Snapshot("a: two", update=True, folder=folder)
    updating("status", "new", "", "== text")
    updating.finish()

    assert read(folder / "status.txt") == {"a: one": "first\n\nlast", "a: two": "new\n\n== text"}


def test_values_that_vary_are_written_as_their_names(folder: Path) -> None:
    updating = Snapshot("a: two", update=True, folder=folder)
    updating("status", "/tmp/x/y and /tmp/x", home="/tmp/x", file="/tmp/x/y")

    assert read(folder / "status.txt")["a: two"] == "<file> and <home>"


def test_an_entry_that_its_test_does_not_use_fails_until_an_update_removes_it(
    folder: Path,
) -> None:
    with pytest.raises(AssertionError, match="does not use"):
        Snapshot("a: one", update=False, folder=folder).finish()
    Snapshot("a: one", update=True, folder=folder).finish()

    assert set(read(folder / "status.txt")) == {"a: two"}


def test_an_entry_without_a_test_is_unused(folder: Path) -> None:
    assert unused({"a: one"}, folder) == ["status.txt: a: two"]


def test_a_test_shows_a_surface_once(folder: Path) -> None:
    snapshot = Snapshot("a: two", update=False, folder=folder)
    snapshot("status", "text")

    with pytest.raises(AssertionError, match="one entry"):
        snapshot("status", "text")


def test_every_entry_belongs_to_a_test_that_takes_snapshots(
    request: pytest.FixtureRequest,
) -> None:
    config = request.config
    if config.args != config.getini("testpaths") or config.option.keyword:
        pytest.skip("only a run of all tests knows which entries are unused")
    collected = {
        key_of(item)
        for item in request.session.items
        if "snapshot" in getattr(item, "fixturenames", ())
    }
    if config.getoption("update_snapshots"):
        for file in FOLDER.glob("*.txt"):
            change(file, lambda found: {key: found[key] for key in found if key in collected})

    assert unused(collected) == []
