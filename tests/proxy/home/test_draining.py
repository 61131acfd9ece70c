"""Drains: a process is known to drain for as long as it does, and not by its pid alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from proxy.home.draining import Drain, drains, noted, sweep

ONE = Drain(pid=11, since=1.5)
OTHER = Drain(pid=12, since=2.5)


def test_a_drain_is_seen_for_as_long_as_it_goes_on(tmp_path: Path) -> None:
    with noted(tmp_path, ONE):
        with noted(tmp_path, OTHER):
            both = drains(tmp_path)
            mode = stat.S_IMODE((tmp_path / "draining-11").stat().st_mode)
        one = drains(tmp_path)

    assert (both, one, drains(tmp_path)) == ([ONE, OTHER], [ONE], [])
    assert mode == 0o600
    assert list(tmp_path.iterdir()) == []


def test_a_note_that_nobody_holds_counts_for_nothing_and_is_swept(tmp_path: Path) -> None:
    left = tmp_path / f"draining-{os.getpid()}"
    left.write_text(f'{{"pid":{os.getpid()},"since":1.0}}')
    with noted(tmp_path, ONE):
        seen = drains(tmp_path)
        there = left.exists()
        sweep(tmp_path)

        assert (seen, there, left.exists()) == ([ONE], True, False)
        assert drains(tmp_path) == [ONE]


def test_a_note_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "draining-12").symlink_to(tmp_path / "none")
    with noted(tmp_path, ONE):
        (tmp_path / "draining-11").write_text("")

        assert drains(tmp_path) == drains(tmp_path / "none") == []
