"""Turns on accounts, as clients, upstream and records see them: who serves, and what then."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proxy.accounts.account import Account
from proxy.accounts.credentials.chatgpt import ChatGptLogin
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import ANY, AccountId
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from proxy.keys import KeyRing
from tests.testkit.accounts import (
    AuthServer,
    FakeCredential,
    access,
    account,
    load,
    moves,
    report,
    served_by,
    service,
    tokens,
    used_headers,
)
from tests.testkit.asgi import Client, HttpClient, SocketClient
from tests.testkit.events import (
    SAID,
    call,
    call_output,
    completed,
    create,
    created,
    failed,
    message,
    post,
    sse,
)
from tests.testkit.runtime import WALL, Bench, OpenBench
from tests.testkit.upstream import STREAM, Script, answer, failing, rejecting, saying, streaming

A = AccountId("a")
BUSY = rejecting(503, b"{}")
THROTTLED = rejecting(429, b"{}")


def pool(names: str = "ab") -> list[Account]:
    return [account(name) for name in names]


def no(**error: Any) -> bytes:
    return json.dumps({"error": error}).encode()


def spent(seconds: int = 7200, *headers: tuple[bytes, bytes]) -> Script:
    error = no(type="usage_limit_reached", message="spent", resets_in_seconds=seconds)
    return rejecting(429, error, *headers)


def unreadable(text: str = "x") -> Script:
    return rejecting(400, no(code="invalid_encrypted_content", message=text))


def reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "encrypted_content": text}


def continuing(name: str = "resp_1") -> bytes:
    return post(previous_response_id=name)


async def one_turn(bench: Bench, transport: Transport = Transport.HTTP, **named: Any) -> Client:
    """A turn on a connection of its own, to its end."""
    client = await bench.turn(transport, **named)
    await client.wait_until(lambda: client.complete or client.events)
    with trio.move_on_after(1):
        await client.wait_for("response.completed")
    return client


async def turns(bench: Bench, *threads: str, transport: Transport = Transport.HTTP) -> None:
    """One after another."""
    for thread in threads:
        await one_turn(bench, transport, thread=thread)


async def answered(bench: Bench, body: bytes, **named: Any) -> HttpClient:
    """An answer over HTTP of any kind."""
    return await bench.post(body, **named).wait_returned()


def ways(bench: Bench) -> list[tuple[str | None, str | None]]:
    """How and why each turn came to its account."""
    return [(move, why) for _, move, why in moves(bench)]


def is_ready(each: Account) -> bool:
    return each.view().standing(ANY, WALL) == "ready"


# Failover.


async def test_a_spent_account_is_left_within_the_turn(
    transport: Transport, open_bench: OpenBench
) -> None:
    bench = open_bench(answer(), spent(), answer(), answer(), accounts=pool())

    await turns(bench, *["thread"] * 3, transport=transport)

    assert served_by(bench) == ["a", "a", "b", "b"]
    assert ways(bench) == [("new", "strategy"), ("rebound", "quota"), ("reused", "bound")]
    assert bench.outcomes == [Outcome.COMPLETED] * 3
    assert (bench.turns, bench.lanes) == (0, 0)


DENIALS = [rejecting(403, b"{}"), rejecting(404, no(code="model_not_found"))]
denied = pytest.mark.parametrize("denial", DENIALS, ids=["403", "model not found"])


@denied
async def test_what_is_denied_to_a_new_thread_binds_it_nowhere_and_is_tried_elsewhere(
    denial: Script, transport: Transport, open_bench: OpenBench
) -> None:
    accounts = pool()
    bench = open_bench(denial, answer(), answer(), accounts=accounts)

    await turns(bench, "thread", "thread", transport=transport)

    assert served_by(bench) == ["a", "b", "b"]
    assert moves(bench)[1] == ("b", "reused", "bound")
    assert all(is_ready(each) for each in accounts)


@denied
async def test_what_is_denied_to_a_bound_thread_is_its_answer_and_moves_nothing(
    denial: Script, open_bench: OpenBench
) -> None:
    bench = open_bench(answer(), denial, answer(), accounts=pool())

    await turns(bench, *["thread"] * 3)

    assert served_by(bench) == ["a", "a", "a"]
    assert [record.status for record in bench.records] == [200, denial.status, 200]


async def test_what_every_account_denies_is_answered_in_the_words_of_the_last(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(*DENIALS, answer(), accounts=pool("abc"))

    await turns(bench, "thread")

    assert [(record.account, record.status) for record in bench.records] == [("b", 404)]
    assert sum(each.bindings for each in bench.runtime.accounts.statistics()) == 0


async def test_a_plain_429_makes_one_detour_and_the_next_turn_tries_home(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(answer(), THROTTLED, answer(), answer(), answer(), accounts=pool())

    await turns(bench, *["thread"] * 4)

    assert served_by(bench) == ["a", "a", "b", "a", "a"]
    assert ways(bench)[1:] == [("detour", "retry"), ("held", "probe"), ("reused", "bound")]


async def test_three_5xx_make_a_detour_and_home_is_where_it_goes_back_to(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(answer(), *[BUSY, answer()] * 3, *[answer()] * 4, accounts=pool("abc"))

    await turns(bench, *["thread"] * 6)
    await trio.sleep(10)
    await turns(bench, *["thread"] * 2)

    assert served_by(bench) == ["a", *"abababbb", "a", "a"]
    assert ways(bench)[1:] == [
        *[("detour", "retry")] * 3,
        *[("detour", "trouble")] * 2,
        ("held", "probe"),
        ("reused", "bound"),
    ]


async def test_the_pool_hears_of_parent_and_model(open_bench: OpenBench) -> None:
    accounts = [account("a", 10), account("b", 20)]
    bench = open_bench(*[answer()] * 4, accounts=accounts)
    await turns(bench, "root")
    report(accounts[0], 50)

    await bench.post(thread="child", parent="root").wait_for("response.completed")
    await bench.post(thread="other").wait_for("response.completed")
    await bench.post(post(model="gpt-6-sol"), thread="root").wait_for("response.completed")

    assert moves(bench)[1:] == [
        ("a", "new", "parent"),
        ("b", "new", "strategy"),
        ("b", "new", "strategy"),
    ]


@pytest.mark.parametrize("trouble", [failing(), THROTTLED], ids=["unreachable", "throttled"])
async def test_an_account_that_failed_once_serves_new_threads_again(
    trouble: Script, transport: Transport, open_bench: OpenBench
) -> None:
    bench = open_bench(trouble, *[answer()] * 41, accounts=pool())
    await turns(bench, "first", transport=transport)
    await trio.sleep(60)

    await turns(bench, *[f"thread {number}" for number in range(40)], transport=transport)

    assert Counter(served_by(bench)[2:]) == {"a": 20, "b": 20}
    assert [why for _, why in ways(bench)].count("probe") == 1
    assert all(is_ready(each) for each in bench.runtime.accounts.all())


async def test_cuts_before_the_first_event_do_not_put_the_only_account_out_of_service(
    open_bench: OpenBench,
) -> None:
    reset = streaming(UpstreamCut("reset"))
    bench = open_bench(*[reset] * 12, answer(), accounts=pool("a"))

    await turns(bench, *[f"thread {number}" for number in range(7)])

    assert len(bench.upstream.sent) == 13
    assert bench.outcomes[-1] is Outcome.COMPLETED


# Quota.


async def test_all_spent_is_said_at_once_with_the_soonest_reset_and_what_was_asked(
    transport: Transport, open_bench: OpenBench
) -> None:
    bench = open_bench(spent(7200), spent(3600), accounts=pool())

    first, second = [(await one_turn(bench, transport)).refused for _ in range(2)]

    assert (second.status, second.code, second.reason) == (
        429,
        "usage_limit_reached",
        "accounts_spent",
    )
    assert second.resets_at == WALL + 3600
    assert served_by(bench) == ["a", "b"]
    assert [record.refusal for record in bench.records] == ["accounts_spent"] * 2
    assert "asked no provider" not in first.message
    assert "asked no provider" in second.message


async def test_one_spent_account_answers_in_its_own_words_and_then_in_ours(
    transport: Transport, open_bench: OpenBench
) -> None:
    refusal = no(type="usage_limit_reached", code="x", message="spent", resets_in_seconds=7200)
    bench = open_bench(rejecting(429, refusal, (b"retry-after", b"7200")), accounts=pool("a"))

    first, second = [(await one_turn(bench, transport)).refused for _ in range(2)]

    assert (first.status, first.message, first.retry_after) == (429, "spent", "7200")
    assert second.resets_at == WALL + 7200
    assert len(bench.upstream.sent) == 1


async def test_a_turn_that_found_only_spent_accounts_may_come_again_for_the_next(
    transport: Transport, open_bench: OpenBench
) -> None:
    bench = open_bench(spent(), spent(), answer(), accounts=pool("abc"))
    first = await one_turn(bench, transport)

    await turns(bench, "thread", transport=transport)

    assert (first.refused.status, first.refused.retry_after) == (503, "1")
    assert served_by(bench) == ["a", "b", "c"]
    assert bench.outcomes == [Outcome.REFUSED, Outcome.COMPLETED]


@pytest.mark.parametrize("leaves", [False, True], ids=["answered", "its client leaves"])
async def test_a_spent_account_is_probed_by_one_request_when_no_other_can_serve(
    leaves: bool, transport: Transport, open_bench: OpenBench
) -> None:
    gate = trio.Event()
    bench = open_bench(spent(5 * 86_400), accounts=pool("a"))
    await one_turn(bench)
    await trio.sleep(301)
    bench.upstream.will(Script((gate, created(), completed())), answer())
    probe = await bench.turn(transport, thread="one")
    await wait_all_tasks_blocked()

    refused = await one_turn(bench, thread="two")
    if leaves:
        await probe.hang_up()
        await probe.wait_returned()
    else:
        gate.set()
        await probe.wait_for("response.completed")
    await turns(bench, "three", transport=transport)

    ended = Outcome.CLIENT_GONE if leaves else Outcome.COMPLETED
    assert refused.refused.reason == "accounts_spent"
    assert moves(bench)[2] == ("a", "new", "probe")
    assert bench.outcomes[1:] == [Outcome.REFUSED, ended, Outcome.COMPLETED]


async def test_a_stream_that_fails_by_quota_moves_the_next_turn(open_bench: OpenBench) -> None:
    refusal = streaming(created(), failed(code="usage_limit_reached"))
    bench = open_bench(answer(), refusal, answer(), accounts=pool())

    await turns(bench, *["thread"] * 3)

    assert served_by(bench) == ["a", "a", "b"]
    assert moves(bench)[2] == ("b", "rebound", "quota")


async def test_usage_is_learnt_from_headers_and_from_events(open_bench: OpenBench) -> None:
    accounts = pool()
    limits = {"primary": {"used_percent": 12, "window_minutes": 300, "reset_at": WALL + 60}}
    event = sse({"type": "codex.rate_limits", "plan_type": "plus", "rate_limits": limits})
    by_header = Script((created(), completed()), headers=(*STREAM, *used_headers(34)))
    bench = open_bench(Script((event, created(), completed())), by_header, accounts=accounts)

    await turns(bench, "one", "two")

    assert [each.view().score(WALL) for each in accounts] == [12, 34]
    assert accounts[0].health.plan == "plus"


async def test_tokens_and_cold_starts_are_counted_for_each_account(open_bench: OpenBench) -> None:
    bench = open_bench(*[answer()] * 3, accounts=pool("a"))

    await turns(bench, "one", "one", "two")

    (statistics,) = bench.runtime.accounts.statistics()
    hour = statistics.last_hour
    assert (hour.turns, hour.cold_starts) == (3, 2)
    assert (hour.cached_tokens, hour.uncached_tokens) == (240, 60)
    assert statistics.bindings == 2


# What the record says.


async def test_the_record_names_the_account_whose_words_the_client_got(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(failing(), rejecting(503, b"no"), accounts=pool("abc"))

    client = await one_turn(bench)

    assert client.body == b"no"
    assert served_by(bench) == ["a", "b"]
    assert (bench.records[0].account, bench.records[0].attempts) == ("b", 2)


async def test_an_account_whose_login_failed_is_not_said_to_have_answered(
    open_bench: OpenBench,
) -> None:
    login = FakeCredential("b")
    login.will.append(CredentialFailure(final=False, message="no auth server", retry_seconds=5))
    bench = open_bench(answer(), BUSY, accounts=[account("a"), account("b", credential=login)])

    await turns(bench, "thread", "thread")

    assert bench.records[1].status == 503
    assert moves(bench)[1] == ("a", "reused", "bound")


async def test_the_record_says_why_a_thread_left_although_the_next_account_failed_too(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(answer(), BUSY, answer(), accounts=pool("abc"))
    await turns(bench, "thread")
    bench.runtime.accounts.pause(A, paused=True)

    await turns(bench, "thread")

    assert served_by(bench) == ["a", "b", "c"]
    assert moves(bench)[1] == ("c", "rebound", "paused")


# Credentials.


async def test_nothing_of_the_clients_login_goes_up_with_an_account(
    transport: Transport, open_bench: OpenBench
) -> None:
    headers = [
        ("authorization", "Bearer sk-secret-client"),
        ("chatgpt-account-id", "client"),
        ("openai-organization", "client"),
        ("openai-project", "client"),
        ("x-oai-attestation", "client"),
        ("originator", "codex_exec"),
    ]
    bench = open_bench(answer(), accounts=[account("a", url="https://a.test/v1")])

    await one_turn(bench, transport, headers=headers)

    (sent,) = bench.upstream.sent
    assert sent.header("authorization") == ["Bearer sk-secret-a"]
    assert sent.header("originator") == ["codex_exec"]
    assert sent.request.base_url == "https://a.test/v1"
    assert not any(b"client" in value for _, value in sent.request.headers)


async def test_a_credential_that_cannot_be_had_costs_no_send_and_is_not_an_outage(
    open_bench: OpenBench,
) -> None:
    login = FakeCredential("a")
    bench = open_bench(*[answer()] * 6, accounts=[account("a", credential=login), account("b")])
    await turns(bench, "thread")
    failure = CredentialFailure(final=False, message="no auth server", retry_seconds=3600)
    login.will.extend([failure] * 5)

    await turns(bench, *["thread"] * 5)

    assert served_by(bench) == ["a", *"bbbbb"]
    assert len(login.will) == 4
    assert [record.attempts for record in bench.records] == [1] * 6


async def test_without_any_credential_the_turn_is_withheld(
    transport: Transport, open_bench: OpenBench
) -> None:
    login = FakeCredential("a")
    login.will.append(CredentialFailure(final=False, message="no auth server", retry_seconds=20))
    bench = open_bench(accounts=[account("a", credential=login)])

    refused = (await one_turn(bench, transport)).refused

    assert (refused.status, refused.retry_after) == (503, "20")
    assert refused.reason == "accounts_withheld"
    assert bench.upstream.sent == []
    assert (bench.turns, bench.lanes) == (0, 0)


async def test_a_refused_token_is_renewed_once_and_the_turn_goes_on(open_bench: OpenBench) -> None:
    login = FakeCredential("a", renewed="a-fresh")
    accounts = [account("a", credential=login), account("b")]
    bench = open_bench(rejecting(401, b"{}"), answer(), answer(), accounts=accounts)

    await turns(bench, "thread", "thread")

    assert served_by(bench) == ["a", "a-fresh", "a"]
    assert moves(bench)[1] == ("a", "reused", "bound")


async def test_a_refused_key_serves_no_turn_until_a_probe_says_otherwise(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(rejecting(401, b"no"), answer(), accounts=pool("a"))
    first, second = await one_turn(bench), await one_turn(bench, thread="other")
    await trio.sleep(61)

    await turns(bench, "thread")

    assert first.body == b"no"
    assert (second.refused.status, second.refused.reason) == (503, "accounts_withheld")
    assert bench.outcomes[-1] is Outcome.COMPLETED


async def test_a_client_that_leaves_during_a_refresh_takes_nothing_along(
    transport: Transport, path: Path, open_bench: OpenBench
) -> None:
    server = AuthServer([tokens(access(2))], seconds=5)
    async with service(server) as refresher:
        login = ChatGptLogin(path, refresher)
        only = Account(A, AccountSpec(auth_json=str(path)), login)
        bench = open_bench(answer(), accounts=[only])
        first = await bench.turn(transport, thread="one")
        await trio.sleep(1)
        second = await bench.turn(transport, thread="two")
        await trio.sleep(1)
        waiting = only.in_flight
        await first.hang_up()
        await first.wait_returned()
        left = only.in_flight
        await second.wait_for("response.completed")

    assert (waiting, left, only.in_flight) == (2, 1, 0)
    assert server.asked == ["r0"]
    assert load(path)["tokens"]["refresh_token"] == "r1"
    assert bench.outcomes == [Outcome.CLIENT_GONE, Outcome.COMPLETED]
    assert bench.records[0].attempts == 0


# What a request continues.


async def test_a_detour_gets_the_whole_input_and_no_anchor_of_the_home(
    open_bench: OpenBench,
) -> None:
    detours = [BUSY, answer("resp_2")] * 3
    bench = open_bench(answer("resp_1"), *detours, answer("resp_3"), answer(), accounts=pool())
    await turns(bench, *["thread"] * 4)

    refused = await answered(bench, continuing())
    await turns(bench, "thread")
    await answered(bench, continuing("resp_3"))

    assert (refused.refused.status, refused.refused.code) == (400, "previous_response_not_found")
    assert served_by(bench)[-2:] == ["b", "b"]
    assert moves(bench)[-1] == ("b", "detour", "trouble")
    assert bench.records[-3].attempts == 0
    assert json.loads(bench.upstream.sent[-1].body)["previous_response_id"] == "resp_3"


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (rejecting(503, no(code="x", message="busy")), 503, "x"),
        (spent(), 400, "previous_response_not_found"),
    ],
    ids=["stumbled", "spent"],
)
async def test_an_anchor_outlives_a_hiccup_of_its_account_and_not_its_quota(
    refusal: Script, status: int, code: str, open_bench: OpenBench
) -> None:
    bench = open_bench(answer("resp_1"), refusal, accounts=pool())
    await turns(bench, "thread")

    client = await answered(bench, continuing())

    assert (client.refused.status, client.refused.code) == (status, code)
    assert served_by(bench) == ["a", "a"]
    assert bench.records[1].attempts == 1


async def test_a_response_id_leads_a_turn_without_a_thread_to_its_account_and_no_other(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(answer("resp_1"), answer("resp_2"), accounts=pool())
    await answered(bench, post(), thread=None)
    await answered(bench, continuing(), thread=None)
    bench.runtime.accounts.pause(A, paused=True)

    client = await answered(bench, continuing(), thread=None)

    assert served_by(bench) == ["a", "a"]
    assert client.refused.code == "previous_response_not_found"


async def test_a_response_id_is_of_no_use_with_another_key(
    open_bench: OpenBench, ring: KeyRing
) -> None:
    owner, stranger = ([("x-turnlane-key", ring.add(name).secret)] for name in ("one", "two"))
    bench = open_bench(answer("resp_1"), answer("resp_2"), accounts=pool("a"), keys=ring)
    await answered(bench, post(), headers=owner)

    refused = await answered(bench, continuing(), headers=stranger)
    await answered(bench, continuing(), headers=owner)

    assert refused.refused.code == "previous_response_not_found"
    assert len(bench.upstream.sent) == 2


NOT_FOUND = no(
    type="invalid_request_error",
    code="previous_response_not_found",
    message="gone",
    param="previous_response_id",
)


@pytest.mark.parametrize("names", ["", "a", "ab"])
@pytest.mark.parametrize("status", [400, 404])
async def test_an_upstream_that_does_not_know_a_response_says_so_in_its_own_words(
    names: str, status: int, transport: Transport, open_bench: OpenBench
) -> None:
    accounts = pool(names)
    bench = open_bench(answer("resp_1"), rejecting(status, NOT_FOUND), accounts=accounts)
    client: HttpClient | SocketClient
    if transport is Transport.HTTP:
        await one_turn(bench)
        client = await answered(bench, continuing())
        assert client.body == NOT_FOUND
    else:
        client = bench.socket()
        await client.complete_turn(create(message("one")))
        await client.say_until("error", create(message("two"), previous="resp_1"))
        assert client.events[-1]["error"] == json.loads(NOT_FOUND)["error"]

    assert client.refused.status == status
    assert len(bench.upstream.sent) == 2
    assert all(is_ready(each) for each in accounts)


async def test_an_increment_over_http_goes_up_as_it_came(open_bench: OpenBench) -> None:
    bench = open_bench(saying("resp_1", call("call_1")), answer("resp_2"), accounts=pool("a"))
    await answered(bench, post(input=[message("x" * 100_000)]))
    increment = post(previous_response_id="resp_1", input=[call_output("call_1")])

    await answered(bench, increment)

    assert bench.upstream.sent[1].body == increment
    assert bench.records[1].bytes_up == len(increment)


@pytest.mark.parametrize("how", ["spent", "paused", "removed"])
async def test_a_socket_goes_on_elsewhere_with_everything_that_was_said(
    how: str, open_bench: OpenBench
) -> None:
    bench = open_bench(saying("resp_1", SAID), accounts=pool())
    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    match how:
        case "paused":
            bench.runtime.accounts.pause(A, paused=True)
        case "removed":
            bench.runtime.accounts.remove(A)
        case _:
            bench.upstream.will(spent())
    bench.upstream.will(saying("resp_2"), saying("resp_3"))

    await socket.complete_turn(create(message("two"), previous="resp_1"))
    await socket.complete_turn(create(message("three"), previous="resp_2"))

    why = "quota" if how == "spent" else how
    assert bench.input_of(-2) == [message("one"), SAID, message("two")]
    assert bench.input_of(-1) == [message("one"), SAID, message("two"), message("three")]
    assert served_by(bench)[-2:] == ["b", "b"]
    assert ways(bench)[1:] == [("rebound", why), ("reused", "bound")]
    assert socket.closed_with is None


async def test_turn_state_goes_to_the_account_that_gave_it_and_to_no_other(
    open_bench: OpenBench,
) -> None:
    state = (b"x-codex-turn-state", b"state of a")
    first = Script((created(), completed()), headers=(*STREAM, state))
    bench = open_bench(first, answer(), spent(), answer(), accounts=pool())
    await turns(bench, "thread")

    for _ in range(2):
        await one_turn(bench, headers=[("x-codex-turn-state", "state of a")])

    states = [sent.header("x-codex-turn-state") for sent in bench.upstream.sent]
    assert served_by(bench) == ["a", "a", "a", "b"]
    assert states == [[], ["state of a"], ["state of a"], []]


# Reasoning that another account made.


async def converse(
    bench: Bench, transport: Transport, *histories: Sequence[dict[str, Any]]
) -> None:
    """Turns of one thread, each with its whole input."""
    socket = bench.socket()
    for items in histories:
        if transport is Transport.HTTP:
            await bench.post(post(input=items)).wait_for("response.completed")
        else:
            await socket.complete_turn(create(*items))


async def test_reasoning_that_another_account_cannot_read_is_left_out_once_and_for_good(
    transport: Transport, open_bench: OpenBench
) -> None:
    bench = open_bench(answer(), unreadable(), *[answer()] * 3, accounts=pool())
    await turns(bench, "thread")
    bench.runtime.accounts.pause(A, paused=True)
    history = [message("one"), reasoning("of a"), SAID]
    later = [*history, reasoning("of b"), message("two")]
    compacted = [message("summary"), reasoning("of b"), message("three")]

    await converse(bench, transport, history, later, compacted)

    assert served_by(bench) == ["a", *"bbbb"]
    assert bench.input_of(1) == history
    assert bench.input_of(2) == [message("one"), SAID]
    assert bench.input_of(3) == [message("one"), SAID, reasoning("of b"), message("two")]
    assert bench.input_of(4) == compacted


async def test_a_failover_has_no_send_left_to_find_out_so_it_leaves_reasoning_out(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(answer(), spent(), answer(), accounts=pool())
    await turns(bench, "thread")

    await answered(bench, post(input=[message("one"), reasoning("of a")]))

    assert bench.input_of(2) == [message("one")]


async def test_content_that_stays_unreadable_is_not_sent_for_ever(open_bench: OpenBench) -> None:
    bench = open_bench(unreadable(), unreadable(), accounts=pool())

    client = await answered(bench, post(input=[message("one"), reasoning("of unknown origin")]))

    assert client.refused.code == "invalid_encrypted_content"
    assert len(bench.upstream.sent) == 2


@pytest.mark.parametrize("rest", [(), (created(),)], ids=["before", "after the first event"])
async def test_an_account_is_given_back_when_its_client_leaves(
    rest: tuple[bytes, ...], transport: Transport, open_bench: OpenBench
) -> None:
    (only,) = accounts = pool("a")
    bench = open_bench(streaming(*rest, trio.Event()), accounts=accounts)
    client = await bench.turn(transport)
    await wait_all_tasks_blocked()
    running = only.in_flight

    await client.hang_up()
    await client.wait_returned()

    assert (running, only.in_flight) == (1, 0)
    assert bench.at_rest
