"""ChatGPT logins: one refresh for all who wait, what its failures mean, and a file that others use
too: Codex, another turnlane, its owner with `codex logout`.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from proxy.accounts.credentials.auth_file import LOCK_SUFFIX, locked_beside
from proxy.accounts.credentials.chatgpt import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    SPACING_SECONDS,
    ChatGptLogin,
)
from proxy.accounts.credentials.refresh import (
    REFRESH_SECONDS,
    CredentialFailure,
    RefresherStatistics,
)
from proxy.headers import HeaderList
from tests.testkit.accounts import (
    DUE,
    EXPIRED,
    HOUR,
    REUSED,
    Answered,
    AuthServer,
    access,
    bearer,
    document,
    failure_of,
    identity,
    load,
    remove,
    service,
    signed_in,
    token_of,
    tokens,
    write,
)
from tests.testkit.runtime import WALL

Clock = trio.testing.MockClock
Outcomes = list[HeaderList | CredentialFailure]


async def wait_for_headers(login: ChatGptLogin, outcomes: Outcomes) -> None:
    outcomes.append(await login.headers(WALL))


async def test_a_good_token_is_used_as_it_is(path: Path) -> None:
    write(path, document(access(1)))
    async with signed_in(path) as (login, server):
        assert await login.headers(WALL) == [
            (b"authorization", bearer(access(1))),
            (b"chatgpt-account-id", b"account-1"),
        ]
        assert login.plan == "pro"
        assert server.asked == []


async def test_an_opaque_token_is_used_until_it_is_refused(path: Path) -> None:
    write(path, document("opaque"))
    async with signed_in(path, tokens("opaque-2")) as one:
        assert await one.token() == b"Bearer opaque"
        assert await one.renewed(b"Bearer opaque") == b"Bearer opaque-2"


@pytest.mark.parametrize("expired", [EXPIRED, access(1, WALL), DUE])
async def test_a_token_about_to_expire_is_renewed_and_kept(path: Path, expired: str) -> None:
    write(path, document(expired))
    async with signed_in(path, tokens(access(2), id_token=identity(plan="plus"))) as one:
        fingerprint = one.login.fingerprint

        assert await one.token() == bearer(access(2))
        assert one.server.asked == ["r0"]
        assert one.server.urls == ["https://auth.example/token"]
        assert load(path) == {
            **document(access(2), "r1", id_token=identity(plan="plus")),
            "last_refresh": "2027-01-15T08:00:00.000000Z",
        }
        assert (one.login.fingerprint, one.login.plan) == (fingerprint, "plus")


# Callers.


async def test_fifty_callers_are_one_flight_and_one_request(
    path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([tokens(access(2))], seconds=3)
    outcomes: Outcomes = []
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        async with trio.open_nursery() as callers:
            for _ in range(50):
                callers.start_soon(wait_for_headers, login, outcomes)
        statistics = refresher.statistics()

    assert [token_of(each) for each in outcomes] == [bearer(access(2))] * 50
    assert server.asked == ["r0"]
    assert statistics == RefresherStatistics(started=1, under_way=0)


async def test_a_caller_that_leaves_ends_no_other_caller_s_refresh(
    path: Path, autojump_clock: Clock
) -> None:
    outcomes: Outcomes = []
    async with (
        signed_in(path, tokens(access(2)), seconds=3) as (login, server),
        trio.open_nursery() as others,
    ):
        async with trio.open_nursery() as first:
            first.start_soon(wait_for_headers, login, outcomes)
            await trio.testing.wait_all_tasks_blocked()
            others.start_soon(wait_for_headers, login, outcomes)
            await trio.testing.wait_all_tasks_blocked()
            first.cancel_scope.cancel()
        assert outcomes == []

    assert [token_of(each) for each in outcomes] == [bearer(access(2))]
    assert server.asked == ["r0"]


async def test_accounts_do_not_wait_for_each_other(
    path: Path, tmp_path: Path, autojump_clock: Clock
) -> None:
    other = tmp_path / "other.json"
    write(other, document(EXPIRED, "other"))
    server = AuthServer([tokens(access(2))], seconds=3)
    async with service(server) as refresher, trio.open_nursery() as callers:
        for file in (path, other):
            callers.start_soon(ChatGptLogin(file, refresher).headers, WALL)

    assert sorted(server.asked) == ["other", "r0"]
    assert trio.current_time() == 3


async def test_the_end_of_the_service_does_not_lose_a_token_under_way(
    path: Path, autojump_clock: Clock
) -> None:
    async with (
        signed_in(path, tokens(access(2)), seconds=1) as (login, _),
        trio.open_nursery() as callers,
    ):
        callers.start_soon(login.headers, WALL)
        await trio.testing.wait_all_tasks_blocked()
        callers.cancel_scope.cancel()

    assert load(path)["tokens"]["refresh_token"] == "r1"


# A token that the upstream has refused.


async def test_a_refused_token_is_renewed_once(path: Path) -> None:
    write(path, document(access(1)))
    async with signed_in(path, tokens(access(2))) as one:
        assert await one.renewed(bearer(access(1))) == bearer(access(2))
        assert await one.renewed(access(1).encode()) == bearer(access(2))
        assert one.server.asked == ["r0"]


async def test_a_token_that_expired_unused_is_renewed_when_an_older_one_is_refused(
    path: Path,
) -> None:
    async with signed_in(path, tokens(access(2))) as one:
        assert await one.renewed(bearer(access(0))) == bearer(access(2))


async def test_a_token_just_renewed_and_refused_again_is_held_back(
    path: Path, autojump_clock: Clock
) -> None:
    async with signed_in(path, tokens(access(2), "r1"), tokens(access(3), "r2")) as one:
        await one.token()
        await trio.sleep(1)
        failure = failure_of(await one.login.renew(bearer(access(2)), WALL))
        asked = len(one.server.asked)
        await trio.sleep(SPACING_SECONDS)
        later = await one.renewed(bearer(access(2)))

    assert (failure.final, failure.retry_seconds) == (False, SPACING_SECONDS - 1)
    assert asked == 1
    assert later == bearer(access(3))


async def test_a_clock_that_is_wrong_does_not_ask_for_every_turn(
    path: Path, autojump_clock: Clock
) -> None:
    two, three = (access(number, WALL - 1) for number in (2, 3))
    async with signed_in(path, tokens(two), tokens(three)) as one:
        seen = {await one.token() for _ in range(9)}

        assert seen == {bearer(two)}
        assert one.server.asked == ["r0"]
        assert await one.renewed(bearer(two)) == bearer(three)


# An auth server that refuses, or is in trouble.


async def test_an_auth_server_that_does_not_answer_is_given_up(
    path: Path, autojump_clock: Clock
) -> None:
    async with signed_in(path, tokens(access(2)), seconds=999) as one:
        failure = await one.failure()

    assert not failure.final
    assert "took too long" in failure.message
    assert trio.current_time() == REFRESH_SECONDS


async def test_a_refused_refresh_token_is_final_until_another_is_there(
    path: Path, autojump_clock: Clock
) -> None:
    async with signed_in(path, REUSED) as one:
        failures = [await one.failure() for _ in range(3)]
        failures.append(failure_of(await one.login.renew(bearer(EXPIRED), WALL)))
        write(path, document(access(5), "r5"))
        after = await one.token()

    assert all(failure.final for failure in failures)
    assert "refresh_token_reused" in failures[0].message
    assert one.server.asked == ["r0"]
    assert after == bearer(access(5))


@pytest.mark.parametrize("trouble", [(500, b"a secret page"), ConnectionError("a secret host")])
async def test_an_auth_server_in_trouble_is_left_alone_longer_each_time(
    path: Path, trouble: Answered, autojump_clock: Clock
) -> None:
    pauses: list[float | None] = []
    async with signed_in(path, trouble) as one:
        for asked in range(1, 10):
            first, at_once = await one.failure(), await one.failure()
            pauses.append(first.retry_seconds)

            assert not first.final
            assert "secret" not in first.message
            assert at_once == first
            assert len(one.server.asked) == asked
            await trio.sleep(first.retry_seconds or 0)

    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-2:] == [LONGEST_PAUSE_SECONDS] * 2


async def test_the_rest_of_a_pause_is_told_and_success_ends_it(
    path: Path, autojump_clock: Clock
) -> None:
    trouble, good = (500, b""), tokens(access(2, WALL - 1))
    async with signed_in(path, trouble, trouble, good, trouble) as one:
        await one.failure()
        await trio.sleep(2)
        rest = await one.failure()
        await trio.sleep(3)
        await one.failure()
        await trio.sleep(10)
        await one.token()
        await trio.sleep(SPACING_SECONDS)
        again = await one.failure()

    assert rest.retry_seconds == 3
    assert again.retry_seconds == FIRST_PAUSE_SECONDS
    assert one.server.asked == ["r0", "r0", "r0", "r1"]


@pytest.mark.parametrize("trouble", [(500, b""), REUSED])
async def test_a_token_that_is_still_good_is_used_whatever_the_auth_server_says(
    path: Path, trouble: tuple[int, bytes], autojump_clock: Clock
) -> None:
    write(path, document(DUE))
    async with signed_in(path, trouble) as one:
        assert [await one.token() for _ in range(2)] == [bearer(DUE)] * 2
        assert failure_of(await one.login.renew(bearer(DUE), WALL)).final is (trouble is REUSED)
        assert one.server.asked == ["r0"]


async def test_an_answer_without_an_access_token_is_a_failure_and_its_refresh_token_is_kept(
    path: Path,
) -> None:
    async with signed_in(path, (200, b'{"refresh_token": "r1"}')) as one:
        assert not (await one.failure()).final

    assert load(path)["tokens"]["refresh_token"] == "r1"


async def test_without_a_refresh_token_an_expired_one_is_final(path: Path) -> None:
    write(path, document(EXPIRED, ""))
    async with signed_in(path) as one:
        failure = await one.failure()

    assert failure.final
    assert "no refresh token" in failure.message


# The lock.


async def test_a_token_that_came_while_we_waited_for_the_lock_is_used(
    path: Path, autojump_clock: Clock
) -> None:
    outcomes: Outcomes = []
    async with (
        signed_in(path) as (login, server),
        trio.open_nursery() as callers,
        locked_beside(path),
    ):
        callers.start_soon(wait_for_headers, login, outcomes)
        await trio.sleep(1)
        write(path, document(access(2)))

    assert token_of(outcomes[0]) == bearer(access(2))
    assert server.asked == []


@pytest.mark.parametrize(
    "spoil",
    [remove, lambda path: write(path, document(EXPIRED, ""))],
    ids=["gone", "without a refresh token"],
)
async def test_a_file_spoilt_while_we_waited_for_the_lock_is_not_refreshed(
    spoil: Callable[[Path], None], path: Path, autojump_clock: Clock
) -> None:
    outcomes: Outcomes = []
    async with (
        signed_in(path) as (login, server),
        trio.open_nursery() as callers,
        locked_beside(path),
    ):
        callers.start_soon(wait_for_headers, login, outcomes)
        await trio.testing.wait_all_tasks_blocked()
        spoil(path)

    assert failure_of(outcomes[0]).final
    assert server.asked == []


async def test_a_refused_caller_does_not_take_the_refused_token_from_anothers_flight(
    path: Path, autojump_clock: Clock
) -> None:
    """The flight finds what Codex wrote; that very token has just been refused."""
    outcomes: Outcomes = []
    async with signed_in(path, tokens(access(3))) as (login, server):

        async def refused() -> None:
            outcomes.append(await login.renew(bearer(access(2)), WALL))

        async with trio.open_nursery() as callers, locked_beside(path):
            callers.start_soon(wait_for_headers, login, outcomes)
            await trio.testing.wait_all_tasks_blocked()
            write(path, document(access(2)))
            callers.start_soon(refused)
            await trio.testing.wait_all_tasks_blocked()

    assert [token_of(each) for each in outcomes] == [bearer(access(2)), bearer(access(3))]
    assert server.asked == ["r0"]


async def test_a_lock_that_stays_held_is_a_failure_that_passes(
    path: Path, autojump_clock: Clock
) -> None:
    async with signed_in(path) as one, locked_beside(path):
        failure = await one.failure()

    assert (failure.final, failure.retry_seconds) == (False, FIRST_PAUSE_SECONDS)
    assert trio.current_time() == REFRESH_SECONDS


async def test_no_lock_no_refresh(path: Path) -> None:
    path.with_name(path.name + LOCK_SUFFIX).mkdir()
    async with signed_in(path) as one:
        failure = await one.failure()

    assert not failure.final
    assert "cannot be locked" in failure.message
    assert one.server.asked == []


# What others write.


async def test_a_newer_token_in_the_file_is_used_without_asking(path: Path) -> None:
    async with signed_in(path) as one:
        write(path, document(access(2)))

        assert await one.token() == bearer(access(2))
        assert await one.renewed(bearer(access(1))) == bearer(access(2))
        assert one.server.asked == []


@pytest.mark.parametrize("late", [False, True])
async def test_a_refresh_token_that_codex_used_first_is_not_a_failure(
    path: Path, late: bool, autojump_clock: Clock
) -> None:
    def codex_writes() -> None:
        write(path, document(access(2), "r1"))

    async def codex_writes_late() -> None:
        await trio.sleep(1)
        codex_writes()

    before = (lambda: None) if late else codex_writes
    async with signed_in(path, REUSED, before=before) as one, trio.open_nursery() as nursery:
        if late:
            nursery.start_soon(codex_writes_late)

        assert await one.token() == bearer(access(2))
        assert one.server.asked == ["r0"]


async def test_a_successor_that_has_expired_too_is_renewed(
    path: Path, autojump_clock: Clock
) -> None:
    def another_writes() -> None:
        if load(path)["tokens"]["refresh_token"] == "r0":
            write(path, document(access(2, WALL - 1), "r1"))

    async with signed_in(path, REUSED, tokens(access(3), "r2"), before=another_writes) as one:
        assert await one.token() == bearer(access(3))
        assert one.server.asked == ["r0", "r1"]


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
    async with signed_in(path) as one:
        fingerprint = one.login.fingerprint
        ruin(path)

        for outcome in (await one.login.headers(WALL), await one.login.renew(b"x", WALL)):
            assert failure_of(outcome).final
            assert says in failure_of(outcome).message
        assert (one.login.fingerprint, one.login.plan) == (fingerprint, None)
        write(path, document(access(2)))
        assert await one.token() == bearer(access(2))


async def test_a_broken_file_passes(path: Path) -> None:
    write(path, b'{"tokens": {"acc')
    async with signed_in(path) as one:
        for outcome in (await one.login.headers(WALL), await one.login.renew(b"x", WALL)):
            assert not failure_of(outcome).final
            assert failure_of(outcome).retry_seconds is not None
        assert one.login.fingerprint == ""
        write(path, document(access(1)))
        assert await one.token() == bearer(access(1))
        assert one.login.fingerprint != ""


async def test_while_the_file_is_being_written_the_last_good_token_serves(path: Path) -> None:
    write(path, document(access(1)))
    async with signed_in(path) as one:
        fingerprint = one.login.fingerprint
        write(path, b"")

        assert await one.token() == bearer(access(1))
        assert one.login.fingerprint == fingerprint
        assert not (await one.failure(WALL + 9999)).final


async def test_another_login_changes_the_fingerprint(path: Path) -> None:
    write(path, document(access(1)))
    async with signed_in(path) as (login, _):
        before = login.fingerprint
        write(path, document(access(2), "r9", account_id="account-2"))

        assert login.fingerprint != before
        assert (b"chatgpt-account-id", b"account-2") in await login.headers(WALL)  # type: ignore[operator]


@pytest.mark.parametrize("expired", [False, True])
async def test_another_login_written_during_a_refresh_wins(path: Path, expired: bool) -> None:
    token = access(9, WALL + (-1 if expired else 9999))
    other = document(token, "r9", account_id="account-2")
    async with signed_in(path, tokens(access(2)), before=lambda: write(path, other)) as one:
        if expired:
            assert not (await one.failure()).final
        else:
            assert await one.token() == bearer(token)

    assert load(path) == other


async def test_what_cannot_be_written_is_used_and_not_forgotten(
    path: Path, autojump_clock: Clock
) -> None:
    """The refresh token in the file is used up: only memory has its successor."""
    blocked = path.parent / f"{path.name}.{os.getpid()}.new"
    blocked.mkdir()
    async with signed_in(
        path, tokens(access(2), "r1"), (200, b'{"access_token": "opaque"}')
    ) as one:
        first = [await one.token() for _ in range(2)]
        blocked.rmdir()
        await trio.sleep(SPACING_SECONDS)
        second = await one.token(WALL + 2 * HOUR)

    assert first == [bearer(access(2))] * 2
    assert second == b"Bearer opaque"
    assert one.server.asked == ["r0", "r1"]
    assert load(path)["tokens"]["refresh_token"] == "r1"
    assert load(path)["tokens"]["access_token"] == "opaque"


async def test_no_secret_is_shown(path: Path) -> None:
    async with service(AuthServer([])) as refresher:
        shown = repr(ChatGptLogin(path, refresher)) + repr(refresher)

    assert EXPIRED not in shown
    assert "r0" not in shown.replace(str(path), "").replace(hex(id(refresher)), "")
