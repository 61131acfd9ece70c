"""The refresher: flights belong to the service; what an auth server's answer means."""

import logging

import pytest
import trio
import trio.testing

from proxy.accounts.credentials.auth_json import Renewal
from proxy.accounts.credentials.refresh import (
    LAST_SECONDS,
    MOST_FLIGHTS,
    CredentialFailure,
    Refresher,
    judge,
)
from tests.testkit.accounts import AuthServer, service, tokens


async def never_asked(url: str, body: object) -> tuple[int, bytes]:
    raise AssertionError("nobody asks")


def test_tokens_are_a_renewal() -> None:
    assert judge(*tokens("a", "r")) == Renewal(access_token="a", refresh_token="r")


@pytest.mark.parametrize(
    ("status", "answer", "named"),
    [
        (401, b'{"error": {"code": "refresh_token_reused"}}', "401 (refresh_token_reused)"),
        (400, b'{"error": "invalid_grant"}', "400 (invalid_grant)"),
        (401, b"<html>secret</html>", "401;"),
    ],
)
def test_a_refused_refresh_token_is_final(status: int, answer: bytes, named: str) -> None:
    failure = judge(status, answer)

    assert isinstance(failure, CredentialFailure)
    assert failure.final
    assert f"the refresh failed with status {named}" in failure.message
    assert "secret" not in failure.message


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, b"secret"),
        (503, b'{"error": "invalid_grant"}'),
        (429, b"secret"),
        (403, b"secret"),
        (400, b'{"error": "secret"}'),
        (302, b""),
        (200, b"secret"),
        (200, b"{}"),
    ],
)
def test_any_other_trouble_passes(status: int, answer: bytes) -> None:
    failure = judge(status, answer)

    assert isinstance(failure, CredentialFailure)
    assert not failure.final
    assert str(status) in failure.message
    assert "secret" not in failure.message


async def test_a_bug_in_one_flight_ends_no_other(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def bug(shelter: trio.CancelScope) -> CredentialFailure:
        raise RuntimeError("a bug")

    async def work(shelter: trio.CancelScope) -> CredentialFailure:
        return CredentialFailure(final=True, message="done")

    async with service(AuthServer([])) as refresher:
        broken, good = refresher.start(bug), refresher.start(work)
        await broken.ended.wait()
        await good.ended.wait()

    assert isinstance(broken.outcome, CredentialFailure)
    assert not broken.outcome.final
    assert good.outcome == CredentialFailure(final=True, message="done")
    assert [x.levelno for x in caplog.records] == [logging.ERROR]


async def test_flights_are_bounded() -> None:
    async def work(shelter: trio.CancelScope) -> CredentialFailure:
        raise AssertionError("nobody serves")

    refresher = Refresher(never_asked)
    flights = [refresher.start(work) for _ in range(MOST_FLIGHTS + 1)]

    assert [flight.ended.is_set() for flight in flights[-2:]] == [False, True]
    assert isinstance(flights[-1].outcome, CredentialFailure)
    assert flights[-1].outcome.retry_seconds == LAST_SECONDS


async def test_the_end_of_the_service_leaves_no_caller_waiting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    steps: list[str] = []

    async def sheltered(shelter: trio.CancelScope) -> CredentialFailure:
        with shelter:
            await trio.sleep(LAST_SECONDS - 1)
            steps.append("kept")
        return CredentialFailure(final=True, message="kept")

    async def stuck(shelter: trio.CancelScope) -> CredentialFailure:
        with shelter:
            await trio.sleep_forever()
        return CredentialFailure(final=True, message="cut off")

    async def late(shelter: trio.CancelScope) -> CredentialFailure:
        steps.append("late")
        return CredentialFailure(final=True, message="late")

    async with service(AuthServer([])) as refresher:
        flights = [refresher.start(work) for work in (sheltered, stuck)]
        await trio.testing.wait_all_tasks_blocked()
        flights += [refresher.start(late), refresher.start(late)]
    after = refresher.start(late)

    assert trio.current_time() == LAST_SECONDS
    assert steps == ["kept"]
    assert all(flight.ended.is_set() for flight in (*flights, after))
    assert flights[0].outcome == CredentialFailure(final=True, message="kept")
    assert isinstance(after.outcome, CredentialFailure)
    assert not after.outcome.final
