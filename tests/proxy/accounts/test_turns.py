"""Turns on accounts, as clients, upstream and records see them: who serves, and what then."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proxy.accounts.bindings import ThreadName
from proxy.accounts.claim import AccountRequest
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.route import Route, RoutingSettings
from proxy.accounts.usage import QuotaUsage
from proxy.accounts.view import ANY, AccountId, Window
from proxy.errors import UpstreamCut
from proxy.ingress.identity import Identity
from proxy.journal.record import Outcome, Transport
from proxy.keys import KeyRing
from tests.testkit.accounts import FakeCredential, account, moves, report, served_by, used_headers
from tests.testkit.events import SAID, completed, create, created, failed, message, post, sse
from tests.testkit.runtime import TRANSPORTS, WALL, Bench
from tests.testkit.upstream import STREAM, Script, answer, rejecting, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)

SPENT = json.dumps(
    {"error": {"type": "usage_limit_reached", "message": "spent", "resets_in_seconds": 7200}}
).encode()
BUSY = rejecting(429, b"{}")
CUT = streaming(created(), UpstreamCut("reset"))


def spent(seconds: int = 7200, **more: Any) -> Script:
    error = {"type": "usage_limit_reached", "message": "spent", "resets_in_seconds": seconds}
    return rejecting(429, json.dumps({"error": error | more}).encode())


async def turns(bench: Bench, *threads: str, transport: Transport = Transport.HTTP) -> None:
    """One after another, each to its end."""
    for thread in threads:
        client = await bench.turn(transport, thread=thread)
        await client.wait_until(lambda: client.complete or client.events)  # noqa: B023
        with trio.move_on_after(1):
            await client.wait_for("response.completed")


def pool_bound(bench: Bench) -> int:
    """The threads that are bound to some account."""
    return sum(each.bindings for each in bench.runtime.accounts.statistics())


@pytest.mark.parametrize(("affinity", "expected"), [(True, 0), (False, 1)])
async def test_capacity_first_moves_once_to_where_there_is_headroom(
    affinity: bool, expected: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    a, b, c = account("a", 50), account("b", 99), account("c", 97)
    routing = RoutingSettings(cache_affinity=affinity)
    bench = Bench(nursery, *[answer()] * 21, accounts=[a, b, c], routing=routing)
    await turns(bench, "thread")
    report(a, 95)
    report(b, 40)

    await turns(bench, *["thread"] * 20)

    assert [move for _, move, _ in moves(bench)].count("rebound") == expected
    assert served_by(bench)[-1] == ("b" if expected else "a")


@both
async def test_a_spent_account_is_left_within_the_turn(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(
        nursery, answer(), spent(), answer(), answer(), accounts=[account("a"), account("b")]
    )

    await turns(bench, *["thread"] * 3, transport=transport)

    assert served_by(bench) == ["a", "a", "b", "b"]
    assert moves(bench) == [
        ("a", "new", "strategy"),
        ("b", "rebound", "quota"),
        ("b", "reused", "bound"),
    ]
    assert bench.outcomes == [Outcome.COMPLETED] * 3
    assert (bench.turns, bench.lanes) == (0, 0)


DENIALS = [
    rejecting(403, b"{}"),
    rejecting(404, b'{"error":{"code":"model_not_found"}}'),
]


@both
@pytest.mark.parametrize("no", DENIALS, ids=["403", "model not found"])
async def test_what_is_denied_to_a_new_thread_binds_it_nowhere_and_is_tried_elsewhere(
    no: Script, transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account("a"), account("b")]
    bench = Bench(nursery, no, answer(), answer(), accounts=pool)

    await turns(bench, "thread", "thread", transport=transport)

    assert served_by(bench) == ["a", "b", "b"]
    assert moves(bench)[1] == ("b", "reused", "bound")
    assert [each.view().standing(ANY, WALL) for each in pool] == ["ready", "ready"]


@pytest.mark.parametrize("no", DENIALS, ids=["403", "model not found"])
async def test_what_is_denied_to_a_bound_thread_is_its_answer_and_moves_nothing(
    no: Script, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer(), no, answer(), accounts=[account("a"), account("b")])

    await turns(bench, *["thread"] * 3)

    assert served_by(bench) == ["a", "a", "a"]
    assert [record.status for record in bench.records] == [200, no.status, 200]


async def test_what_every_account_denies_is_answered_in_the_words_of_the_last(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account("a"), account("b"), account("c")]
    bench = Bench(nursery, DENIALS[0], DENIALS[1], answer(), accounts=pool)

    await turns(bench, "thread")

    assert [(record.account, record.status) for record in bench.records] == [("b", 404)]
    assert pool_bound(bench) == 0


async def test_an_account_that_is_closed_is_left_and_takes_nothing_new(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closed = rejecting(403, b'{"error":{"code":"account_deactivated"}}')
    pool = [account("a"), account("b")]
    bench = Bench(nursery, answer(), closed, *[answer()] * 3, accounts=pool)

    await turns(bench, "thread", "thread", "other", "third")

    assert served_by(bench) == ["a", "a", "b", "b", "b"]
    assert pool[0].view().standing(ANY, WALL) == "invalid"


async def test_a_plain_429_goes_elsewhere_once_and_the_next_turn_tries_home(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account("a"), account("b")]
    bench = Bench(nursery, answer(), BUSY, answer(), answer(), answer(), accounts=pool)

    await turns(bench, *["thread"] * 4)

    assert served_by(bench) == ["a", "a", "b", "a", "a"]
    assert moves(bench)[1:] == [
        ("b", "detour", "retry"),
        ("a", "held", "probe"),
        ("a", "reused", "bound"),
    ]


async def test_three_5xx_make_a_detour_and_home_is_where_it_goes_back_to(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    no = rejecting(503, b"{}")
    bench = Bench(nursery, answer(), accounts=[account("a"), account("b"), account("c")])
    await turns(bench, "thread")
    bench.upstream.will(no, answer(), no, answer(), no, answer())
    await turns(bench, *["thread"] * 3)
    bench.upstream.will(*[answer()] * 4)

    await turns(bench, *["thread"] * 2)
    await trio.sleep(10)
    await turns(bench, *["thread"] * 2)

    assert served_by(bench) == ["a", *"abababbb", "a", "a"]
    assert [(move, why) for _, move, why in moves(bench)[1:]] == [
        *[("detour", "retry")] * 3,
        *[("detour", "trouble")] * 2,
        ("held", "probe"),
        ("reused", "bound"),
    ]


@both
async def test_all_spent_is_said_at_once_with_the_soonest_reset(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account("a"), account("b")]
    bench = Bench(nursery, spent(7200), spent(3600), accounts=pool)
    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)
    began = trio.current_time()

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)

    assert client.refused.status == 429
    assert client.refused.code == "usage_limit_reached"
    assert client.refused.resets_at == WALL + 3600
    assert client.refused.reason == "accounts_spent"
    assert trio.current_time() - began < 1
    assert served_by(bench) == ["a", "b"]
    assert bench.records[-1].refusal == "accounts_spent"


async def test_one_spent_account_answers_in_its_own_words_and_then_in_ours(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(
        nursery, rejecting(429, SPENT, (b"retry-after", b"7200")), accounts=[account("a")]
    )
    first = bench.post()
    await first.wait_returned()

    second = bench.post()
    await second.wait_returned()

    assert first.body == SPENT
    assert second.refused.resets_at == WALL + 7200
    assert len(bench.upstream.sent) == 1


async def test_a_spent_account_is_probed_by_one_request_when_no_other_can_serve(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    gate = trio.Event()
    bench = Bench(nursery, spent(5 * 86400), accounts=[account("a")])
    await bench.post().wait_returned()
    await trio.sleep(301)
    bench.upstream.will(Script((gate, created(), completed())), answer())
    probe = bench.post(thread="one")
    await trio.testing.wait_all_tasks_blocked()

    refused = bench.post(thread="two")
    await refused.wait_returned()
    gate.set()
    await probe.wait_returned()
    await turns(bench, "three")

    assert refused.refused.reason == "accounts_spent"
    assert moves(bench)[2] == ("a", "new", "probe")
    assert bench.outcomes[2:] == [Outcome.COMPLETED] * 2


async def test_a_burst_of_new_sessions_spreads_before_any_has_answered(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    gate = trio.Event()
    held = Script((gate, created(), completed()))
    pool = [account(name, used) for name, used in zip("abcd", (3, 1, 2, 0), strict=True)]
    bench = Bench(nursery, *[held] * 32, accounts=pool)

    clients = [bench.post(thread=f"thread {number}") for number in range(32)]
    await trio.testing.wait_all_tasks_blocked()
    gate.set()
    for client in clients:
        await client.wait_for("response.completed")

    assert Counter(served_by(bench)) == dict.fromkeys("abcd", 8)
    assert [each.in_flight for each in pool] == [0] * 4


# Credentials.


@both
async def test_nothing_of_the_clients_login_goes_up_with_an_account(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    headers = [
        ("authorization", "Bearer sk-secret-client"),
        ("chatgpt-account-id", "client"),
        ("openai-organization", "client"),
        ("openai-project", "client"),
        ("x-oai-attestation", "client"),
        ("originator", "codex_exec"),
    ]
    bench = Bench(nursery, answer(), accounts=[account("a", url="https://a.test/v1")])
    if transport is Transport.HTTP:
        await bench.post(headers=headers).wait_for("response.completed")
    else:
        await bench.socket(headers=headers).complete_turn(create())

    (sent,) = bench.upstream.sent
    assert sent.header("authorization") == ["Bearer sk-secret-a"]
    assert sent.header("originator") == ["codex_exec"]
    assert sent.request.base_url == "https://a.test/v1"
    assert not any(b"client" in value for _, value in sent.request.headers)


async def test_a_credential_that_cannot_be_had_costs_no_send_and_is_not_an_outage(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    login = FakeCredential("a")
    pool = [account("a", credential=login), account("b")]
    bench = Bench(nursery, *[answer()] * 6, accounts=pool)
    await turns(bench, "thread")
    no = CredentialFailure(final=False, message="no auth server", retry_seconds=3600)
    login.will.extend([no] * 5)

    await turns(bench, *["thread"] * 5)

    assert served_by(bench) == ["a", *"bbbbb"]
    assert len(login.will) == 4
    assert [record.attempts for record in bench.records] == [1] * 6


@both
async def test_without_any_credential_the_turn_is_withheld(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    login = FakeCredential("a")
    login.will.append(CredentialFailure(final=False, message="no auth server", retry_seconds=20))
    bench = Bench(nursery, accounts=[account("a", credential=login)])

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)

    assert (client.refused.status, client.refused.retry_after) == (503, "20")
    assert client.refused.reason == "accounts_withheld"
    assert bench.upstream.sent == []
    assert (bench.turns, bench.lanes) == (0, 0)


async def test_a_refused_token_is_renewed_once_and_the_turn_goes_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    login = FakeCredential("a", renewed="a-fresh")
    pool = [account("a", credential=login), account("b")]
    bench = Bench(nursery, rejecting(401, b"{}"), answer(), answer(), accounts=pool)

    await turns(bench, "thread", "thread")

    assert served_by(bench) == ["a", "a-fresh", "a"]
    assert moves(bench)[1] == ("a", "reused", "bound")


async def test_a_refused_key_serves_no_turn_until_a_probe_says_otherwise(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, rejecting(401, b"no"), answer(), accounts=[account("a")])
    first = bench.post()
    await first.wait_returned()
    second = bench.post(thread="other")
    await second.wait_returned()
    await trio.sleep(61)

    await turns(bench, "thread")

    assert first.body == b"no"
    assert (second.refused.status, second.refused.reason) == (503, "accounts_withheld")
    assert bench.outcomes[-1] is Outcome.COMPLETED


# What belongs to an account.


def reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "encrypted_content": text}


REFUSED_CONTENT = rejecting(400, b'{"error":{"code":"invalid_encrypted_content","message":"x"}}')


async def test_reasoning_that_another_account_cannot_read_is_left_out_once_and_for_good(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    a, b = account("a", 1), account("b", 50)
    bench = Bench(nursery, answer(), REFUSED_CONTENT, answer(), answer(), accounts=[a, b])
    await turns(bench, "thread")
    bench.runtime.accounts.pause(AccountId("a"), paused=True)
    history = [message("one"), reasoning("of a"), SAID]

    await bench.post(post(input=history)).wait_for("response.completed")
    history += [reasoning("of b"), message("two")]
    await bench.post(post(input=history)).wait_for("response.completed")

    assert served_by(bench) == ["a", "b", "b", "b"]
    assert reasoning("of a") in bench.input_of(1)
    assert bench.input_of(2) == [message("one"), SAID]
    assert bench.input_of(3) == [message("one"), SAID, reasoning("of b"), message("two")]


async def test_a_failover_has_no_send_left_to_find_out_so_it_leaves_reasoning_out(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer(), spent(), answer(), accounts=[account("a"), account("b")])
    await turns(bench, "thread")

    client = bench.post(post(input=[message("one"), reasoning("of a")]))
    await client.wait_for("response.completed")

    assert bench.input_of(2) == [message("one")]


async def test_content_that_stays_unreadable_is_not_sent_for_ever(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, REFUSED_CONTENT, REFUSED_CONTENT, accounts=[account("a"), account("b")])

    client = bench.post(post(input=[message("one"), reasoning("of nobody")]))
    await client.wait_returned()

    assert client.refused.code == "invalid_encrypted_content"
    assert len(bench.upstream.sent) == 2


async def test_turn_state_goes_to_the_account_that_gave_it_and_to_no_other(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    gave = (*STREAM, (b"x-codex-turn-state", b"state of a"))
    first = Script((created(), completed()), headers=gave)
    bench = Bench(
        nursery, first, answer(), spent(), answer(), accounts=[account("a"), account("b")]
    )
    await turns(bench, "thread")

    for _ in range(2):
        client = bench.post(headers=[("x-codex-turn-state", "state of a")])
        await client.wait_for("response.completed")

    states = [sent.header("x-codex-turn-state") for sent in bench.upstream.sent]
    assert served_by(bench) == ["a", "a", "a", "b"]
    assert states == [[], ["state of a"], ["state of a"], []]


async def test_a_response_id_is_never_shown_to_another_account(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(
        nursery, answer("resp_1"), answer("resp_2"), accounts=[account("a"), account("b")]
    )
    await bench.post(thread=None).wait_for("response.completed")
    body = post(previous_response_id="resp_1")
    await bench.post(body, thread=None).wait_for("response.completed")
    bench.runtime.accounts.pause(AccountId("a"), paused=True)

    client = bench.post(body, thread=None)
    await client.wait_returned()

    assert served_by(bench) == ["a", "a"]
    assert client.refused.code == "previous_response_not_found"


async def test_a_response_id_is_of_no_use_with_another_key(
    nursery: trio.Nursery, autojump_clock: MockClock, tmp_path: Path
) -> None:
    keys = KeyRing(tmp_path)
    owner, stranger = ([("x-turnlane-key", keys.add(name).secret)] for name in ("one", "two"))
    bench = Bench(nursery, answer("resp_1"), answer("resp_2"), accounts=[account("a")], keys=keys)
    await bench.post(headers=owner).wait_for("response.completed")
    body = post(previous_response_id="resp_1")

    refused = bench.post(body, headers=stranger)
    await refused.wait_returned()
    await bench.post(body, headers=owner).wait_for("response.completed")

    assert refused.refused.code == "previous_response_not_found"
    assert len(bench.upstream.sent) == 2


# Usage.


async def test_usage_is_learnt_from_headers_and_from_events(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account("a"), account("b")]
    limits = {"primary": {"used_percent": 12, "window_minutes": 300, "reset_at": WALL + 60}}
    event = sse({"type": "codex.rate_limits", "plan_type": "plus", "rate_limits": limits})
    by_header = Script((created(), completed()), headers=(*STREAM, *used_headers(34)))
    bench = Bench(nursery, Script((event, created(), completed())), by_header, accounts=pool)

    await turns(bench, "one", "two")

    assert [each.view().score(WALL) for each in pool] == [12, 34]
    assert pool[0].state.plan == "plus"


async def test_tokens_and_cold_starts_are_counted_for_each_account(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, *[answer()] * 3, accounts=[account("a")])

    await turns(bench, "one", "one", "two")

    (statistics,) = bench.runtime.accounts.statistics()
    assert statistics.last_hour.turns == 3
    assert statistics.last_hour.cold_starts == 2
    assert statistics.last_hour.cached_tokens == 240
    assert statistics.last_hour.uncached_tokens == 60
    assert statistics.bindings == 2


async def test_while_the_window_runs_that_was_refused_a_cooler_bar_is_no_reason_to_go_back(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    a, b = account("a"), account("b")
    for each, used in ((a, 10), (b, 60)):
        week = Window(
            name="secondary", used_percent=used, resets_at=WALL + 6 * 86_400, minutes=10_080
        )
        each.state.learn(QuotaUsage(windows=(week,)), WALL)
    full = rejecting(429, SPENT, *used_headers(100))
    bench = Bench(nursery, full, *[answer()] * 4, accounts=[a, b])

    for name in ("one", "two", "three"):
        await turns(bench, name)
        await trio.sleep(2400)
    await turns(bench, "four")

    assert served_by(bench) == ["a", "b", "b", "b", "a"]


async def test_a_stream_that_fails_by_quota_moves_the_next_turn(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    no = streaming(created(), failed(code="usage_limit_reached"))
    bench = Bench(nursery, answer(), no, answer(), accounts=[account("a"), account("b")])

    await turns(bench, *["thread"] * 3)

    assert served_by(bench) == ["a", "a", "b"]
    assert moves(bench)[2] == ("b", "rebound", "quota")


@both
async def test_a_turn_that_found_only_spent_accounts_may_come_again_for_the_next(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account(name) for name in "abc"]
    bench = Bench(nursery, spent(), spent(), answer(), accounts=pool)
    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)

    await turns(bench, "thread", transport=transport)

    assert (client.refused.status, client.refused.retry_after) == (503, "1")
    assert served_by(bench) == ["a", "b", "c"]
    assert bench.outcomes == [Outcome.REFUSED, Outcome.COMPLETED]


async def test_the_preview_names_who_serves_at_every_step_and_changes_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    no = rejecting(503, b"{}")
    scripts = [answer(), *[no, answer()] * 3, answer(), answer(), spent(), answer(), answer()]
    bench = Bench(nursery, *scripts, accounts=[account("a"), account("b")])
    thread = Identity(thread="thread", session="session").ask(0).thread
    assert thread is not None
    asked = AccountRequest(thread=ThreadName(thread), model="gpt-5.5")

    for _ in range(8):
        previews = [bench.runtime.accounts.preview(asked) for _ in range(3)]
        before = len(bench.upstream.sent)
        await turns(bench, "thread")
        assert previews[0] == previews[1] == previews[2]
        assert isinstance(previews[0], Route)
        assert served_by(bench)[before] == previews[0].account
        await trio.sleep(20)
