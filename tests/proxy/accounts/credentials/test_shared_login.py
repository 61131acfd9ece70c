"""A login that others use too: Codex, another turnlane, its owner with `codex logout`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from proxy.accounts.credentials.auth_file import LOCK_SUFFIX, locked_beside
from proxy.accounts.credentials.chatgpt import FIRST_PAUSE_SECONDS, SPACING_SECONDS, ChatGptLogin
from proxy.accounts.credentials.refresh import REFRESH_SECONDS, CredentialFailure
from proxy.headers import HeaderList
from tests.proxy.accounts.kit import (
    DUE,
    EXPIRED,
    REUSED,
    WALL,
    AuthServer,
    access,
    bearer,
    document,
    exists,
    failure_of,
    load,
    remove,
    service,
    token_of,
    tokens,
    write,
)

Clock = trio.testing.MockClock


async def test_a_newer_token_in_the_file_is_used_without_asking(path: Path) -> None:
    server = AuthServer([])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        write(path, document(access(2)))

        assert token_of(await login.headers(WALL)) == bearer(access(2))
        assert token_of(await login.renew(bearer(access(1)), WALL)) == bearer(access(2))
        assert server.asked == []


async def test_a_token_that_came_while_we_waited_for_the_lock_is_used(
    path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([])
    outcomes: list[bytes] = []
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)

        async def call() -> None:
            outcomes.append(token_of(await login.headers(WALL)))

        async with trio.open_nursery() as callers, locked_beside(path):
            callers.start_soon(call)
            await trio.sleep(1)
            write(path, document(access(2)))

    assert outcomes == [bearer(access(2))]
    assert server.asked == []


async def test_a_lock_that_stays_held_is_a_failure_that_passes(
    path: Path, autojump_clock: Clock
) -> None:
    async with service(AuthServer([])) as refresher, locked_beside(path):
        failure = failure_of(await ChatGptLogin(path, refresher).headers(WALL))

    assert (failure.final, failure.retry_seconds) == (False, FIRST_PAUSE_SECONDS)
    assert trio.current_time() == REFRESH_SECONDS


async def test_no_lock_no_refresh(path: Path) -> None:
    path.with_name(path.name + LOCK_SUFFIX).mkdir()
    server = AuthServer([])
    async with service(server) as refresher:
        failure = failure_of(await ChatGptLogin(path, refresher).headers(WALL))

    assert not failure.final
    assert "cannot be locked" in failure.message
    assert server.asked == []


async def test_a_refused_caller_does_not_take_the_refused_token_from_anothers_flight(
    path: Path, autojump_clock: Clock
) -> None:
    """The flight finds what Codex wrote; that very token has just been refused."""
    server = AuthServer([tokens(access(3))])
    outcomes: list[bytes] = []
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)

        async def call() -> None:
            outcomes.append(token_of(await login.headers(WALL)))

        async def refused() -> None:
            outcomes.append(token_of(await login.renew(bearer(access(2)), WALL)))

        async with trio.open_nursery() as callers, locked_beside(path):
            callers.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            write(path, document(access(2)))
            callers.start_soon(refused)
            await trio.testing.wait_all_tasks_blocked()

    assert outcomes == [bearer(access(2)), bearer(access(3))]
    assert server.asked == ["r0"]


@pytest.mark.parametrize("late", [False, True])
async def test_a_refresh_token_that_codex_used_first_is_not_a_failure(
    path: Path, late: bool, autojump_clock: Clock
) -> None:
    def codex_writes() -> None:
        write(path, document(access(2), "r1"))

    async def codex_writes_late() -> None:
        await trio.sleep(1)
        codex_writes()

    server = AuthServer([REUSED], before=(lambda: None) if late else codex_writes)
    async with service(server) as refresher, trio.open_nursery() as nursery:
        if late:
            nursery.start_soon(codex_writes_late)
        outcome = await ChatGptLogin(path, refresher).headers(WALL)

    assert token_of(outcome) == bearer(access(2))
    assert server.asked == ["r0"]


async def test_a_successor_that_has_expired_too_is_renewed(
    path: Path, autojump_clock: Clock
) -> None:
    def another_writes() -> None:
        if load(path)["tokens"]["refresh_token"] == "r0":
            write(path, document(access(2, WALL - 1), "r1"))

    server = AuthServer([REUSED, tokens(access(3), "r2")], before=another_writes)
    async with service(server) as refresher:
        outcome = await ChatGptLogin(path, refresher).headers(WALL)

    assert token_of(outcome) == bearer(access(3))
    assert server.asked == ["r0", "r1"]


@pytest.mark.parametrize(
    ("ruin", "says"),
    [
        (remove, "is gone"),
        (lambda path: write(path, {"OPENAI_API_KEY": "sk-x", "tokens": None}), "no tokens"),
    ],
)
async def test_a_login_that_was_signed_out_is_final_at_once(
    path: Path, ruin: Callable[[Path], None], says: str
) -> None:
    write(path, document(access(1)))
    async with service(AuthServer([])) as refresher:
        login = ChatGptLogin(path, refresher)
        fingerprint = login.fingerprint
        ruin(path)

        for outcome in (await login.headers(WALL), await login.renew(b"x", WALL)):
            assert failure_of(outcome).final
            assert says in failure_of(outcome).message
        assert (login.fingerprint, login.plan) == (fingerprint, None)
        write(path, document(access(2)))
        assert token_of(await login.headers(WALL)) == bearer(access(2))


async def test_a_login_signed_out_during_its_refresh_does_not_come_back(path: Path) -> None:
    write(path, document(DUE))
    server = AuthServer([tokens(access(2))], before=lambda: remove(path))
    async with service(server) as refresher:
        failure = failure_of(await ChatGptLogin(path, refresher).headers(WALL))

    assert failure.final
    assert not exists(path)


@pytest.mark.parametrize(
    "spoil",
    [remove, lambda path: write(path, document(EXPIRED, ""))],
    ids=["gone", "without a refresh token"],
)
async def test_a_file_spoilt_before_the_lock_is_had_is_not_refreshed(
    spoil: Callable[[Path], None], path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([])
    outcomes: list[HeaderList | CredentialFailure] = []
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)

        async def call() -> None:
            outcomes.append(await login.headers(WALL))

        async with trio.open_nursery() as callers, locked_beside(path):
            callers.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            spoil(path)

    assert failure_of(outcomes[0]).final
    assert server.asked == []


async def test_a_broken_file_passes(path: Path) -> None:
    write(path, b'{"tokens": {"acc')
    async with service(AuthServer([])) as refresher:
        login = ChatGptLogin(path, refresher)

        for outcome in (await login.headers(WALL), await login.renew(b"x", WALL)):
            assert not failure_of(outcome).final
            assert failure_of(outcome).retry_seconds is not None
        assert login.fingerprint == ""
        write(path, document(access(1)))
        assert token_of(await login.headers(WALL)) == bearer(access(1))
        assert login.fingerprint != ""


async def test_while_the_file_is_being_written_the_last_good_token_serves(path: Path) -> None:
    write(path, document(access(1)))
    async with service(AuthServer([])) as refresher:
        login = ChatGptLogin(path, refresher)
        fingerprint = login.fingerprint
        write(path, b"")

        assert token_of(await login.headers(WALL)) == bearer(access(1))
        assert login.fingerprint == fingerprint
        assert not failure_of(await login.headers(WALL + 9999)).final


async def test_another_login_changes_the_fingerprint(path: Path) -> None:
    write(path, document(access(1)))
    async with service(AuthServer([])) as refresher:
        login = ChatGptLogin(path, refresher)
        before = login.fingerprint
        write(path, document(access(2), "r9", account_id="account-2"))

        assert login.fingerprint != before
        assert dict(await login.headers(WALL))[b"chatgpt-account-id"] == b"account-2"  # type: ignore[arg-type]


@pytest.mark.parametrize("expired", [False, True])
async def test_another_login_written_during_a_refresh_wins(path: Path, expired: bool) -> None:
    token = access(9, WALL + (-1 if expired else 9999))
    other = document(token, "r9", account_id="account-2")
    server = AuthServer([tokens(access(2))], before=lambda: write(path, other))
    async with service(server) as refresher:
        outcome = await ChatGptLogin(path, refresher).headers(WALL)

    assert load(path) == other
    if expired:
        assert not failure_of(outcome).final
    else:
        assert token_of(outcome) == bearer(token)


async def test_what_cannot_be_written_is_used_and_not_forgotten(
    path: Path, autojump_clock: Clock
) -> None:
    """The refresh token in the file is used up: only memory has its successor."""
    blocked = path.parent / f"{path.name}.{os.getpid()}.new"
    blocked.mkdir()
    answers = [tokens(access(2), "r1"), (200, b'{"access_token": "opaque"}')]
    server = AuthServer([*answers])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        first = [token_of(await login.headers(WALL)) for _ in range(2)]
        blocked.rmdir()
        await trio.sleep(SPACING_SECONDS)
        second = await login.headers(WALL + 2 * 3600)

    assert first == [bearer(access(2))] * 2
    assert token_of(second) == b"Bearer opaque"
    assert server.asked == ["r0", "r1"]
    assert load(path)["tokens"]["refresh_token"] == "r1"
    assert load(path)["tokens"]["access_token"] == "opaque"
