"""Status: every statistic in one document."""

import os
from dataclasses import replace

import msgspec
import trio
from trio.testing import MockClock

from lifecycle import Ask, LaneId, Limits, PrincipalId
from proxy import __version__
from proxy.accounts.pool import AccountPool
from proxy.accounts.route import RoutingSettings
from proxy.ingress.status import status
from proxy.journal.record import Transport
from proxy.refusal import Reason
from tests.proxy.ingress.runtimes import WALL, runtime
from tests.testkit.accounts import account

LANE = LaneId("0" * 32)


async def test_the_document_says_what_is_held_and_what_has_been(autojump_clock: MockClock) -> None:
    running = runtime(Limits(turns=5, lanes=4, lanes_kept=1, websockets=3, memory_bytes=1000))
    running.journal.refused(Reason.FOREIGN_ORIGIN, transport=Transport.HTTP, wall=0.0)
    started = trio.current_time()
    ask = Ask(principal=PrincipalId("local"), lane=LANE, body_bytes=70)
    async with running.admission.lease(ask):
        with running.admission.websocket():
            await trio.sleep(1.25)
            document = status(running)

    assert document == {
        "service": "turnlane",
        "version": __version__,
        "pid": os.getpid(),
        "uptime_seconds": started + 1.25,
        "state": "ready",
        "draining": [],
        "lanes": {
            "active": 1,
            "peak": 1,
            "peak_retained_bytes": 32,
            "admitted": 1,
            "refused": 0,
            "retained_bytes": 32,
            "limit": 4,
        },
        "turns": {"active": 1, "peak": 1, "admitted": 1, "refused": 0, "limit": 5},
        "websockets": {"active": 1, "limit": 3},
        "memory": {"held_bytes": 70, "limit_bytes": 1000},
        "workflows": {"tracked": 0, "active": 0, "refused": 0, "limit": 512, "busiest": []},
        "accounts": [],
        "refusals": {"foreign_origin": 1},
        "outcomes": {"refused": 1},
        "journal": {"queued": 0, "lost": 0},
    }
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


async def test_a_drain_is_a_state_of_its_own(autojump_clock: MockClock) -> None:
    running = runtime()
    running.admission.close_door(10.0)
    await trio.sleep(11)

    assert status(running)["state"] == "draining"


async def test_accounts_are_shown_with_what_all_of_them_did_in_the_last_hour(
    autojump_clock: MockClock,
) -> None:
    one, other = account("one", 43), account("other")
    one.tally.turn(WALL, cold=True)
    one.tally.tokens(WALL, 90, 10)
    other.tally.turn(WALL, cold=False)
    other.tally.tokens(WALL, 5, 5)
    pool = AccountPool([one, other], RoutingSettings(), lambda: WALL)
    document = status(replace(runtime(), accounts=pool))

    assert [(each["id"], each["score"]) for each in document["accounts"]] == [
        ("one", 43),
        ("other", None),
    ]
    assert document["accounts"][0]["last_hour"]["cached_tokens"] == 90
    assert document["last_hour"] == {
        "turns": 2,
        "cold_starts": 1,
        "cached_tokens": 95,
        "uncached_tokens": 15,
    }
    assert "sk-secret" not in msgspec.json.encode(document).decode()
