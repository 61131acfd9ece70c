"""Credentials: one refresh for all who wait, and what its failures mean."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from proxy.accounts.credentials.api_key import ApiKey
from proxy.accounts.credentials.chatgpt import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    SPACING_SECONDS,
    ChatGptLogin,
)
from proxy.accounts.credentials.refresh import REFRESH_SECONDS, RefresherStatistics
from tests.proxy.accounts.kit import (
    DUE,
    EXPIRED,
    REUSED,
    WALL,
    AuthServer,
    access,
    bearer,
    document,
    failure_of,
    identity,
    load,
    service,
    token_of,
    tokens,
    write,
)

Clock = trio.testing.MockClock


def test_an_api_key_is_a_bearer_with_what_it_was_given() -> None:
    whole = ApiKey(secret="sk-secret", organization="org-1", project="proj_1")

    assert ApiKey(secret="sk-secret").headers() == [(b"authorization", b"Bearer sk-secret")]
    assert whole.headers() == [
        (b"authorization", b"Bearer sk-secret"),
        (b"openai-organization", b"org-1"),
        (b"openai-project", b"proj_1"),
    ]


def test_an_api_key_has_a_fingerprint_of_its_own() -> None:
    one, other = ApiKey(secret="sk-one"), ApiKey(secret="sk-other")

    assert one.fingerprint == ApiKey(secret="sk-one", project="p").fingerprint
    assert one.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 32
    assert "sk-one" not in f"{one!r} {one.fingerprint}"


@pytest.mark.parametrize("secret", ["", "a b", "a\n", "é"])
def test_an_api_key_that_no_header_can_hold_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        ApiKey(secret=secret)


async def test_a_good_token_is_used_as_it_stands(path: Path) -> None:
    write(path, document(access(1)))
    server = AuthServer([])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)

        assert await login.headers(WALL) == [
            (b"authorization", bearer(access(1))),
            (b"chatgpt-account-id", b"account-1"),
        ]
        assert login.plan == "pro"
        assert server.asked == []


async def test_an_opaque_token_is_used_until_it_is_refused(path: Path) -> None:
    write(path, document("opaque"))
    async with service(AuthServer([tokens("opaque-2")])) as refresher:
        login = ChatGptLogin(path, refresher)

        assert token_of(await login.headers(WALL)) == b"Bearer opaque"
        assert token_of(await login.renew(b"Bearer opaque", WALL)) == b"Bearer opaque-2"


@pytest.mark.parametrize("expired", [EXPIRED, access(1, WALL), DUE])
async def test_a_token_about_to_expire_is_renewed_and_kept(path: Path, expired: str) -> None:
    write(path, document(expired))
    server = AuthServer([tokens(access(2), id_token=identity(plan="plus"))])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        fingerprint = login.fingerprint

        assert token_of(await login.headers(WALL)) == bearer(access(2))
        assert server.asked == ["r0"]
        assert server.urls == ["https://auth.example/token"]
        assert load(path) == {
            **document(access(2), "r1", id_token=identity(plan="plus")),
            "last_refresh": "2027-01-15T08:00:00.000000Z",
        }
        assert (login.fingerprint, login.plan) == (fingerprint, "plus")


async def test_fifty_callers_are_one_flight_and_one_request(
    path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([tokens(access(2))], seconds=3)
    outcomes: list[bytes] = []
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)

        async def call() -> None:
            outcomes.append(token_of(await login.headers(WALL)))

        async with trio.open_nursery() as callers:
            for _ in range(50):
                callers.start_soon(call)
        statistics = refresher.statistics()

    assert outcomes == [bearer(access(2))] * 50
    assert server.asked == ["r0"]
    assert statistics == RefresherStatistics(started=1, under_way=0)


async def test_a_caller_that_leaves_ends_no_other_caller_s_refresh(
    path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([tokens(access(2))], seconds=3)
    outcomes: list[bytes] = []
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)

        async def call(scope: trio.CancelScope) -> None:
            with scope:
                outcomes.append(token_of(await login.headers(WALL)))

        async with trio.open_nursery() as callers:
            first = trio.CancelScope()
            callers.start_soon(call, first)
            await trio.testing.wait_all_tasks_blocked()
            callers.start_soon(call, trio.CancelScope())
            await trio.testing.wait_all_tasks_blocked()
            first.cancel()

    assert first.cancelled_caught
    assert outcomes == [bearer(access(2))]
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


async def test_an_auth_server_that_does_not_answer_is_given_up(
    path: Path, autojump_clock: Clock
) -> None:
    async with service(AuthServer([tokens(access(2))], seconds=999)) as refresher:
        failure = failure_of(await ChatGptLogin(path, refresher).headers(WALL))

    assert not failure.final
    assert "took too long" in failure.message
    assert trio.current_time() == REFRESH_SECONDS


async def test_a_refused_token_is_renewed_once(path: Path) -> None:
    write(path, document(access(1)))
    server = AuthServer([tokens(access(2))])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)

        assert token_of(await login.renew(bearer(access(1)), WALL)) == bearer(access(2))
        assert token_of(await login.renew(access(1), WALL)) == bearer(access(2))
        assert server.asked == ["r0"]


async def test_a_token_that_expired_unused_is_renewed_when_an_older_one_is_refused(
    path: Path,
) -> None:
    async with service(AuthServer([tokens(access(2))])) as refresher:
        outcome = await ChatGptLogin(path, refresher).renew(bearer(access(0)), WALL)

    assert token_of(outcome) == bearer(access(2))


async def test_a_token_just_renewed_and_refused_again_is_held_back(
    path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([tokens(access(2), "r1"), tokens(access(3), "r2")])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        await login.headers(WALL)
        await trio.sleep(1)
        failure = failure_of(await login.renew(bearer(access(2)), WALL))
        asked = len(server.asked)
        await trio.sleep(SPACING_SECONDS)
        later = await login.renew(bearer(access(2)), WALL)

    assert (failure.final, failure.retry_seconds) == (False, SPACING_SECONDS - 1)
    assert asked == 1
    assert token_of(later) == bearer(access(3))


async def test_a_clock_that_is_wrong_does_not_ask_for_every_turn(
    path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([tokens(access(number, WALL - 1)) for number in (2, 3)])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        seen = [token_of(await login.headers(WALL)) for _ in range(9)]

        assert set(seen) == {bearer(access(2, WALL - 1))}
        assert server.asked == ["r0"]
        refused = await login.renew(seen[0], WALL)
        assert token_of(refused) == bearer(access(3, WALL - 1))


async def test_a_refused_refresh_token_is_final_until_another_is_there(
    path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([REUSED])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        failures = [failure_of(await login.headers(WALL)) for _ in range(3)]
        failures.append(failure_of(await login.renew(bearer(EXPIRED), WALL)))
        write(path, document(access(5), "r5"))
        after = await login.headers(WALL)

    assert all(failure.final for failure in failures)
    assert "refresh_token_reused" in failures[0].message
    assert server.asked == ["r0"]
    assert token_of(after) == bearer(access(5))


@pytest.mark.parametrize("trouble", [(500, b"a secret page"), ConnectionError("a secret host")])
async def test_an_auth_server_in_trouble_is_left_alone_longer_each_time(
    path: Path, trouble: tuple[int, bytes] | OSError, autojump_clock: Clock
) -> None:
    server = AuthServer([trouble])
    pauses: list[float | None] = []
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        for asked in range(1, 10):
            first = failure_of(await login.headers(WALL))
            at_once = failure_of(await login.headers(WALL))
            pauses.append(first.retry_seconds)

            assert not first.final
            assert "secret" not in first.message
            assert at_once == first
            assert len(server.asked) == asked
            await trio.sleep(first.retry_seconds or 0)

    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-2:] == [LONGEST_PAUSE_SECONDS] * 2


async def test_the_rest_of_a_pause_is_told_and_success_ends_it(
    path: Path, autojump_clock: Clock
) -> None:
    trouble, good = (500, b""), tokens(access(2, WALL - 1))
    server = AuthServer([trouble, trouble, good, trouble])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        await login.headers(WALL)
        await trio.sleep(2)
        rest = failure_of(await login.headers(WALL))
        await trio.sleep(3)
        await login.headers(WALL)
        await trio.sleep(10)
        await login.headers(WALL)
        await trio.sleep(SPACING_SECONDS)
        again = failure_of(await login.headers(WALL))

    assert rest.retry_seconds == 3
    assert again.retry_seconds == FIRST_PAUSE_SECONDS
    assert server.asked == ["r0", "r0", "r0", "r1"]


@pytest.mark.parametrize("trouble", [(500, b""), REUSED])
async def test_a_token_that_is_still_good_is_used_whatever_the_auth_server_says(
    path: Path, trouble: tuple[int, bytes], autojump_clock: Clock
) -> None:
    write(path, document(DUE))
    server = AuthServer([trouble])
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)

        assert token_of(await login.headers(WALL)) == bearer(DUE)
        assert token_of(await login.headers(WALL)) == bearer(DUE)
        assert failure_of(await login.renew(bearer(DUE), WALL)).final is (trouble is REUSED)
        assert server.asked == ["r0"]


@pytest.mark.parametrize("answer", [b"{}", b'{"refresh_token": "r1"}', b"<html>"])
async def test_an_answer_without_an_access_token_is_a_failure(path: Path, answer: bytes) -> None:
    async with service(AuthServer([(200, answer)])) as refresher:
        failure = failure_of(await ChatGptLogin(path, refresher).headers(WALL))

    assert not failure.final
    assert load(path)["tokens"]["refresh_token"] == ("r1" if b"r1" in answer else "r0")


async def test_without_a_refresh_token_an_expired_one_is_final(path: Path) -> None:
    write(path, document(EXPIRED, ""))
    async with service(AuthServer([])) as refresher:
        failure = failure_of(await ChatGptLogin(path, refresher).headers(WALL))

    assert failure.final
    assert "no refresh token" in failure.message


async def test_the_end_of_the_service_does_not_lose_a_token_under_way(
    path: Path, autojump_clock: Clock
) -> None:
    server = AuthServer([tokens(access(2))], seconds=1)
    async with service(server) as refresher, trio.open_nursery() as callers:
        callers.start_soon(ChatGptLogin(path, refresher).headers, WALL)
        await trio.testing.wait_all_tasks_blocked()
        callers.cancel_scope.cancel()

    assert load(path)["tokens"]["refresh_token"] == "r1"


async def test_no_secret_is_shown(path: Path) -> None:
    async with service(AuthServer([])) as refresher:
        shown = repr(ChatGptLogin(path, refresher)) + repr(refresher)

    assert EXPIRED not in shown
    assert "r0" not in shown.replace(str(path), "").replace(hex(id(refresher)), "")
