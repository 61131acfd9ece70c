"""Resident memory is read where the system tells it, and is absent elsewhere."""

from pathlib import Path

from harness.recall.proxy import Resident, read_resident


def test_what_the_system_tells(tmp_path: Path) -> None:
    told = tmp_path / "7" / "status"
    told.parent.mkdir()
    told.write_text("Name:\tx\nVmHWM:\t    20 kB\nVmRSS:\t    10 kB\n")

    assert read_resident(7, tmp_path) == Resident(now=10 * 1024, peak=20 * 1024)


def test_a_process_that_is_not_there_or_does_not_say(tmp_path: Path) -> None:
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "status").write_text("Name:\tx\n")

    assert read_resident(7, tmp_path) is None
    assert read_resident(8, tmp_path) is None
    assert read_resident(None, tmp_path) is None
