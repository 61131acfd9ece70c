"""Files are replaced in one step, and a lock is held by one at a time."""

import os
import stat
from pathlib import Path

import pytest

from proxy.files import (
    LOCK_TRIES,
    beside,
    lock_file,
    lock_holder,
    move_over,
    remove_file,
    replace_file,
    try_lock,
    write_beside,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced_and_private_whatever_it_was_before(path: Path) -> None:
    path.chmod(0o644)
    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_missing_is_made_with_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "unit", b"new", mode=0o666)
    finally:
        os.umask(before)

    assert mode(tmp_path / "unit") == 0o640


def test_until_it_is_renamed_the_old_content_is_there(path: Path) -> None:
    fresh = write_beside(path, b"new")
    before = path.read_bytes()
    move_over(fresh, path)

    assert (before, path.read_bytes()) == (b"old", b"new")
    assert not fresh.exists()


def test_a_replacement_may_have_the_mode_of_its_file(path: Path) -> None:
    path.chmod(0o444)

    assert mode(write_beside(path, b"new", mode=None)) == 0o444


def test_what_a_killed_process_left_beside_a_file_is_written_over(path: Path) -> None:
    beside(path).write_bytes(b"half of what was to come")
    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_and_its_target_is_replaced(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    replace_file(link, b"new")

    assert link.is_symlink()
    assert path.read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_stays_theirs(path: Path) -> None:
    os.chown(path, 12345, 12346)
    replace_file(path, b"new")

    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


def test_a_replacement_that_fails_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError):  # noqa: PT011  whichever the system says
        replace_file(folder, b"new")

    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_may_be_removed_twice(path: Path) -> None:
    remove_file(path)
    remove_file(path)

    assert not path.exists()


def test_a_lock_has_one_holder_and_ends_with_its_block(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock_file(path) as one, lock_file(path) as other:
        free = lock_holder(path)
        assert try_lock(one)
        os.pwrite(one, b"one", 0)
        taken = try_lock(other), lock_holder(path), lock_holder(path, most_bytes=2)

    assert (free, taken, lock_holder(path)) == (None, (False, b"one", b"on"), None)
    assert mode(path) == 0o600


def test_a_lock_that_is_taken_for_an_instant_is_tried_again(tmp_path: Path) -> None:
    pauses: list[float] = []
    with lock_file(tmp_path / "lock") as one, lock_file(tmp_path / "lock") as other:
        assert try_lock(one)
        missed = try_lock(other, tries=LOCK_TRIES, pause=pauses.append)

    assert not missed
    assert len(pauses) == LOCK_TRIES - 1


def test_a_lock_that_was_never_made_is_held_by_no_process(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "none") is None
    assert list(tmp_path.iterdir()) == []
