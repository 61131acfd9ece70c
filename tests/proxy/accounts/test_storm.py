"""Random acts of clients, accounts and their operator, by seed: every account comes to rest."""

import json
import logging
from random import Random

import pytest
import trio
from trio.testing import MockClock

from proxy.accounts.account import Account
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.view import AccountId
from tests.proxy.ingress.test_endings_storm import (
    act_on_a_socket,
    act_over_http,
    some_limits,
    some_script,
)
from tests.testkit.accounts import FakeCredential, account, used_headers
from tests.testkit.events import completed, created
from tests.testkit.runtime import WALL, Bench
from tests.testkit.upstream import STREAM, Script, rejecting

SEEDS = 8
NAMES = ("a", "b", "c")
REFUSALS = (
    {"type": "usage_limit_reached", "resets_in_seconds": 100},
    {"code": "insufficient_quota", "message": "no quota for gpt-5.5"},
    {"code": "invalid_encrypted_content"},
    {"code": "rate_limit_exceeded"},
)


def some_answer(random: Random, name: str) -> Script:
    """As in any storm, and what only accounts are told."""
    match random.randrange(10):
        case 0:
            return rejecting(429, json.dumps({"error": random.choice(REFUSALS)}).encode())
        case 1:
            return rejecting(random.choice([401, 402, 400]), b'{"error":{"message":"no"}}')
        case 2:
            headers = (*STREAM, *used_headers(random.choice([10, 90, 100])))
            return Script((created(name), completed(name)), headers=headers)
        case _:
            return some_script(random, name)


async def operate(bench: Bench, logins: list[FakeCredential], random: Random) -> None:
    for _ in range(20):
        name = AccountId(random.choice(NAMES))
        match random.randrange(4):
            case 0:
                bench.runtime.accounts.pause(name, paused=random.random() < 0.5)
            case 1:
                login = random.choice(logins)
                final = random.random() < 0.3
                no = CredentialFailure(final=final, message="no", retry_seconds=7)
                login.will.append(no)
            case 2:
                random.choice(logins).version = str(random.random())
            case _:
                random.choice(logins).fingerprint = str(random.random())
        await trio.sleep(random.choice([0.01, 1.0, 10.0]))


def tried_by_nobody(each: Account) -> bool:
    view = each.view()
    cooldowns = [*view.spent.values(), *view.trouble.values(), view.invalid]
    return not any(x.probing and x.live(WALL) for x in cooldowns if x is not None)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_happens_no_account_is_held_or_tried_afterwards(
    seed: int, nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    logins = [FakeCredential(name, renewed=random.choice([None, name])) for name in NAMES]
    pool = [account(each.name, credential=each) for each in logins]
    scripts = (some_answer(random, f"resp_{number}") for number in range(400))
    bench = Bench(nursery, *scripts, limits=some_limits(random), accounts=pool)
    sockets = [bench.socket() for _ in range(random.randrange(1, 6))]

    async with trio.open_nursery() as acts:
        acts.start_soon(operate, bench, logins, random)
        for socket in sockets:
            acts.start_soon(act_on_a_socket, socket, random)
        for _ in range(random.randrange(4)):
            acts.start_soon(act_over_http, bench, random)
    await trio.sleep(1000)
    for socket in sockets:
        await socket.hang_up()
        await socket.wait_returned()

    assert bench.at_rest
    assert [each.in_flight for each in pool] == [0] * 3
    assert all(tried_by_nobody(each) for each in pool)
    assert all(record.attempts <= 2 for record in bench.records)
    assert sum(record.attempts for record in bench.records) >= len(bench.upstream.sent)
    for record in bench.records:
        assert record.attempts == 0 or record.account in NAMES
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
