"""The file of a login: replaced in one step where it really is, locked beside, copied 0600."""

import stat
from pathlib import Path

import pytest
import trio
import trio.testing

from proxy.accounts.credentials.auth_file import (
    LOCK_SUFFIX,
    MOST_BYTES,
    locked_beside,
    login_copy,
    read,
    read_settled,
    write_back,
)
from proxy.accounts.credentials.auth_file import stamp as stamp_of
from proxy.accounts.credentials.auth_json import Login, NoLogin, Renewal
from tests.testkit.accounts import access, document, identity, load, write
from tests.testkit.runtime import WALL

RENEWAL = Renewal(access_token=access(2), refresh_token="r1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "auth.json"
    write(file, document(access(1)))
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_copy_knows_when_it_is_old(path: Path) -> None:
    copy = read(path)
    same = stamp_of(path)
    write(path, document(access(1), "r"))

    assert copy.stamp == same
    assert stamp_of(path) != same


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b" " * (MOST_BYTES + 1))

    assert read(tmp_path / "none").login is NoLogin.GONE
    assert read(tmp_path).login is NoLogin.BROKEN
    assert read(tmp_path / "large").login is NoLogin.BROKEN
    assert stamp_of(tmp_path / "none") is None


def test_a_write_is_private_and_leaves_nothing_beside_it(path: Path) -> None:
    path.chmod(0o644)
    after = write_back(path, read(path), RENEWAL, WALL)

    assert isinstance(after.login, Login)
    assert after.login.access_token == access(2)
    assert mode(path) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_write_through_a_link_replaces_what_it_leads_to(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "auth.json"
    link.symlink_to(path)
    write_back(link, read(link), RENEWAL, WALL)

    assert link.is_symlink()
    assert load(path)["tokens"]["refresh_token"] == "r1"
    assert mode(path) == 0o600


@pytest.mark.parametrize(
    "other",
    [
        document(access(3), "r3"),
        document(access(3), account_id="account-2"),
        document(access(1), id_token=identity(user="user-2")),
        {"OPENAI_API_KEY": "sk-x"},
    ],
)
def test_what_another_wrote_meanwhile_is_left(path: Path, other: dict[str, object]) -> None:
    before = read(path)
    write(path, other)
    after = write_back(path, before, RENEWAL, WALL)

    assert load(path) == other
    assert after.login == read(path).login


def test_a_login_that_was_signed_out_meanwhile_does_not_come_back(path: Path) -> None:
    before = read(path)
    path.unlink()

    assert write_back(path, before, RENEWAL, WALL).login is NoLogin.GONE
    assert not path.exists()


def test_members_that_another_wrote_meanwhile_are_kept(path: Path) -> None:
    before = read(path)
    write(path, {**document(access(1)), "new": 1})
    write_back(path, before, RENEWAL, WALL)

    assert load(path)["new"] == 1
    assert load(path)["tokens"]["refresh_token"] == "r1"


def test_bytes_of_no_login_are_replaced_by_the_file_as_it_was(path: Path) -> None:
    before = read(path)
    write(path, b'{"tokens": {"acc')
    write_back(path, before, RENEWAL, WALL)

    assert load(path)["tokens"]["refresh_token"] == "r1"
    assert load(path)["auth_mode"] == "chatgpt"


async def test_one_lock_is_held_at_a_time_whichever_link_leads_there(
    path: Path, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(path)
    order: list[str] = []

    async def hold(name: str, through: Path) -> None:
        async with locked_beside(through):
            order.append(f"{name} in")
            await trio.sleep(1)
            order.append(f"{name} out")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, "a", path)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(hold, "b", link)

    assert order == ["a in", "a out", "b in", "b out"]
    assert (tmp_path / f"auth.json{LOCK_SUFFIX}").exists()
    assert mode(tmp_path / f"auth.json{LOCK_SUFFIX}") == 0o600


async def test_a_wait_for_the_lock_can_be_given_up(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with locked_beside(path):
        with trio.move_on_after(5) as wait:
            async with locked_beside(path):
                raise AssertionError("it is held")

    assert wait.cancelled_caught
    async with locked_beside(path):
        assert trio.current_time() < 6


async def test_a_file_that_is_being_written_has_a_second(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def finish() -> None:
        await trio.sleep(0.5)
        write(path, document(access(2)))

    write(path, b"")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(finish)
        whole = await read_settled(path)
    write(path, b"")

    assert isinstance(whole.login, Login)
    assert (await read_settled(path)).login is NoLogin.BROKEN


def test_a_copy_of_a_login_is_private_and_the_same(path: Path, tmp_path: Path) -> None:
    path.chmod(0o644)
    copy = tmp_path / "home" / "logins" / "one.json"
    login_copy(path, copy)

    assert copy.read_bytes() == path.read_bytes()
    assert mode(copy) == 0o600


def test_a_file_without_a_login_is_not_copied(tmp_path: Path) -> None:
    write(tmp_path / "key", {"OPENAI_API_KEY": "sk-x"})
    for name, problem in (
        ("none", "there is no such file"),
        (".", "it is a directory"),
        ("key", "`codex login` makes a login"),
    ):
        with pytest.raises(ValueError, match=problem):
            login_copy(tmp_path / name, tmp_path / "copy")

    assert not (tmp_path / "copy").exists()


def test_a_copy_that_cannot_be_put_there_leaves_nothing(path: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "copy").mkdir(parents=True)
    with pytest.raises(OSError):  # noqa: PT011  whichever the system says
        login_copy(path, tmp_path / "home" / "copy")

    assert list((tmp_path / "home").iterdir()) == [tmp_path / "home" / "copy"]


def test_no_secret_is_shown(path: Path) -> None:
    assert access(1) not in repr(read(path))
    assert "r0" not in repr(read(path))
