"""Drains: a process is known to drain for as long as it does, and not by its pid alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from proxy.home.draining import Drain, drains, noted, sweep

ONE, OTHER = 11, 12


def pids(home: Path) -> list[int]:
    return [drain.pid for drain in drains(home)]


def test_a_drain_is_seen_for_as_long_as_it_goes_on(tmp_path: Path) -> None:
    with noted(tmp_path, ONE):
        with noted(tmp_path, OTHER):
            both = pids(tmp_path)
            mode = stat.S_IMODE((tmp_path / "draining-11").stat().st_mode)
        one = pids(tmp_path)

    assert (both, one, pids(tmp_path)) == ([ONE, OTHER], [ONE], [])
    assert mode == 0o600
    assert list(tmp_path.iterdir()) == []


def test_a_note_without_a_lock_counts_for_nothing_and_is_swept(tmp_path: Path) -> None:
    left = tmp_path / f"draining-{os.getpid()}"
    left.touch()
    with noted(tmp_path, ONE):
        seen = pids(tmp_path)
        there = left.exists()
        sweep(tmp_path)

        assert (seen, there, left.exists()) == ([ONE], True, False)
        assert pids(tmp_path) == [ONE]


def test_a_drain_begins_with_its_note_whatever_was_left_of_its_name(tmp_path: Path) -> None:
    left = tmp_path / "draining-11"
    left.touch()
    os.utime(left, (1.5, 1.5))
    with noted(tmp_path, ONE):
        (drain,) = drains(tmp_path)

        assert drain == Drain(pid=ONE, since=left.stat().st_mtime)
        assert drain.since > 1.5


def test_other_files_are_not_drains(tmp_path: Path) -> None:
    (tmp_path / "draining-").touch()
    (tmp_path / "draining-x").touch()
    sweep(tmp_path)

    assert drains(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 2


def test_a_note_that_cannot_be_opened_is_not_a_drain(tmp_path: Path) -> None:
    (tmp_path / "draining-11").symlink_to(tmp_path / "none")

    assert drains(tmp_path) == []


def test_a_home_that_does_not_exist_has_no_drains(tmp_path: Path) -> None:
    assert drains(tmp_path / "none") == []
