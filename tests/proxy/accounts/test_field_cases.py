"""What pools of accounts were seen to get wrong, replayed through the whole proxy."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.accounts.account import Account
from proxy.accounts.credentials.chatgpt import ChatGptLogin
from proxy.accounts.credentials.refresh import CredentialFailure, Refresher
from proxy.accounts.health import AccountHealth
from proxy.accounts.route import RoutingSettings
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import ANY, AccountId, Standing
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from tests.proxy.accounts.kit import (
    REUSED,
    AuthServer,
    access,
    document,
    load,
    service,
    tokens,
    write,
)
from tests.proxy.accounts.test_turns import reasoning, spent, turns
from tests.testkit.accounts import FakeCredential, account, moves, served_by
from tests.testkit.asgi import HttpClient, SocketClient
from tests.testkit.events import SAID, call, call_output, create, created, failed, message, post
from tests.testkit.home import remembered
from tests.testkit.runtime import TRANSPORTS, WALL, Bench
from tests.testkit.upstream import Script, answer, failing, rejecting, saying, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)


@both
@pytest.mark.parametrize("no", [failing(), rejecting(429, b"{}")], ids=["unreachable", "throttled"])
async def test_an_account_that_failed_once_serves_new_threads_again(
    no: Script, transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, no, *[answer()] * 41, accounts=[account("a"), account("b")])
    await turns(bench, "first", transport=transport)
    await trio.sleep(60)

    await turns(bench, *[f"thread {number}" for number in range(40)], transport=transport)

    assert Counter(served_by(bench)[2:]) == {"a": 20, "b": 20}
    assert [why for _, _, why in moves(bench)].count("probe") == 1
    assert all(
        each.view().standing(ANY, WALL) is Standing.READY for each in bench.runtime.accounts.all()
    )


async def test_an_account_that_stays_down_costs_one_new_thread_a_minute_a_detour(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, accounts=[account("a"), account("b")])
    for number in range(60):
        due = not bench.upstream.sent or bench.runtime.accounts.views()[0].may_probe(
            ANY, bench.runtime.wall()
        )
        bench.upstream.will(*([failing()] if due else []), answer())
        await turns(bench, f"thread {number}")
        await trio.sleep(10)

    served = Counter(served_by(bench))
    assert served["b"] == 60
    assert served["a"] <= 15
    assert bench.outcomes == [Outcome.COMPLETED] * 60


# What the record says.


async def test_the_record_names_the_account_whose_words_the_client_got(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account(name) for name in "abc"]
    bench = Bench(nursery, failing(), rejecting(503, b"no"), accounts=pool)

    client = bench.post()
    await client.wait_returned()

    assert client.body == b"no"
    assert served_by(bench) == ["a", "b"]
    assert bench.records[0].account == "b"
    assert bench.records[0].attempts == 2


async def test_an_account_whose_login_failed_is_not_said_to_have_answered(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    login = FakeCredential("b")
    login.will.append(CredentialFailure(final=False, message="no auth server", retry_seconds=5))
    pool = [account("a"), account("b", credential=login)]
    bench = Bench(nursery, answer(), rejecting(503, b"no"), accounts=pool)
    await turns(bench, "thread")

    client = bench.post()
    await client.wait_returned()

    assert client.body == b"no"
    assert moves(bench)[1] == ("a", "reused", "bound")


async def test_the_record_says_why_a_thread_left_although_the_next_account_failed_too(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account(name) for name in "abc"]
    bench = Bench(nursery, answer(), rejecting(503, b"{}"), answer(), accounts=pool)
    await turns(bench, "thread")
    bench.runtime.accounts.pause(AccountId("a"), paused=True)

    await turns(bench, "thread")

    assert served_by(bench) == ["a", "b", "c"]
    assert moves(bench)[1] == ("c", "rebound", "paused")


@both
async def test_a_refusal_says_that_no_provider_was_asked_only_where_none_was(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, spent(), spent(), accounts=[account("a"), account("b")])
    said = []
    for _ in range(2):
        client = await bench.turn(transport)
        await client.wait_until(lambda: client.complete or client.events)  # noqa: B023
        said.append(client.refused)

    assert [each.reason for each in said] == ["accounts_spent"] * 2
    assert "asked no provider" not in said[0].message
    assert "asked no provider" in said[1].message


# What a request goes on from.


def continuing(name: str = "resp_1") -> bytes:
    return post(previous_response_id=name)


async def test_a_detour_gets_the_whole_input_and_no_anchor_of_the_home(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer("resp_1"), accounts=[account("a"), account("b")])
    await turns(bench, "thread")
    for _ in range(3):
        bench.upstream.will(rejecting(503, b"{}"), answer("resp_2"))
        await turns(bench, "thread")

    refused = bench.post(continuing())
    await refused.wait_returned()
    bench.upstream.will(answer("resp_3"), answer("resp_4"))
    await bench.post().wait_for("response.completed")
    await bench.post(continuing("resp_3")).wait_for("response.completed")

    assert (refused.refused.status, refused.refused.code) == (400, "previous_response_not_found")
    assert served_by(bench)[-2:] == ["b", "b"]
    assert moves(bench)[-1] == ("b", "detour", "trouble")
    assert bench.records[-3].attempts == 0
    assert json.loads(bench.upstream.sent[-1].body)["previous_response_id"] == "resp_3"


@pytest.mark.parametrize(
    ("no", "status", "code"),
    [
        (rejecting(503, b'{"error":{"code":"x","message":"busy"}}'), 503, "x"),
        (spent(), 400, "previous_response_not_found"),
    ],
    ids=["stumbled", "spent"],
)
async def test_an_anchor_outlives_a_hiccup_of_its_account_and_not_its_quota(
    no: Script, status: int, code: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer("resp_1"), no, accounts=[account("a"), account("b")])
    await turns(bench, "thread")

    client = bench.post(continuing())
    await client.wait_returned()

    assert (client.refused.status, client.refused.code) == (status, code)
    assert served_by(bench) == ["a", "a"]
    assert bench.records[1].attempts == 1


NOT_FOUND = (
    b'{"error": {"type":"invalid_request_error","code":"previous_response_not_found",'
    b'"message":"gone","param":"previous_response_id"}}'
)


@both
@pytest.mark.parametrize("accounts", ["", "a", "ab"])
@pytest.mark.parametrize("status", [400, 404])
async def test_an_upstream_that_does_not_know_a_response_says_so_in_its_own_words(
    transport: Transport,
    accounts: str,
    status: int,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    pool = [account(name) for name in accounts]
    bench = Bench(nursery, answer("resp_1"), rejecting(status, NOT_FOUND), accounts=pool)
    client: HttpClient | SocketClient
    if transport is Transport.HTTP:
        await bench.post().wait_for("response.completed")
        client = bench.post(continuing())
        await client.wait_returned()
        said = json.loads(client.body)
        assert client.body == NOT_FOUND
    else:
        client = bench.socket()
        await client.complete_turn(create(message("one")))
        await client.say(create(message("two"), previous="resp_1"))
        await client.wait_for("error")
        said = client.events[-1]

    assert said["error"] == json.loads(NOT_FOUND)["error"]
    assert client.refused.status == status
    assert len(bench.upstream.sent) == 2
    assert all(each.view().standing(ANY, WALL) is Standing.READY for each in pool)


# Reasoning that another account made.


def unreadable(text: str) -> Script:
    error = {"code": "invalid_encrypted_content", "message": text}
    return rejecting(400, json.dumps({"error": error}).encode())


@both
async def test_after_a_compaction_an_account_keeps_the_reasoning_that_is_its_own(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer(), accounts=[account("a"), account("b")])
    await turns(bench, "thread")
    bench.runtime.accounts.pause(AccountId("a"), paused=True)
    bench.upstream.will(unreadable("of a"), answer(), answer())
    compacted = [message("summary"), reasoning("of b"), message("two")]
    histories = ([message("one"), reasoning("of a")], compacted)

    socket = bench.socket()
    for items in histories:
        if transport is Transport.HTTP:
            await bench.post(post(input=items)).wait_for("response.completed")
        else:
            await socket.complete_turn(create(*items))

    assert served_by(bench) == ["a", "b", "b", "b"]
    assert bench.input_of(2) == [message("one")]
    assert bench.input_of(3) == compacted


async def test_a_socket_goes_on_without_the_reasoning_that_its_new_account_cannot_read(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    own, made_by_b = reasoning("of a"), reasoning("of b")
    bench = Bench(nursery, saying("resp_1", own, SAID), accounts=[account("a"), account("b")])
    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    bench.runtime.accounts.pause(AccountId("a"), paused=True)
    bench.upstream.will(unreadable("of a"), saying("resp_2", made_by_b), saying("resp_3"))

    await socket.complete_turn(create(message("two"), previous="resp_1"))
    await socket.complete_turn(create(message("three"), previous="resp_2"))

    assert bench.input_of(1) == [message("one"), own, SAID, message("two")]
    assert bench.input_of(2) == [message("one"), SAID, message("two")]
    assert bench.input_of(3) == [message("one"), SAID, message("two"), made_by_b, message("three")]


# Logins.


def shared_login(path: Path, refresher: Refresher) -> Account:
    spec = AccountSpec(auth_json=str(path))
    return Account(AccountId("login"), spec, ChatGptLogin(path, refresher))


async def test_a_login_that_its_owner_renewed_serves_again_although_others_served_meanwhile(
    path: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with service(AuthServer([REUSED])) as refresher:
        pool = [shared_login(path, refresher), account("b")]
        bench = Bench(nursery, *[answer()] * 21, accounts=pool)
        await turns(bench, "first")
        standing = pool[0].view().standing(ANY, WALL)
        write(path, document(access(2), "r2"))

        await turns(bench, *[f"thread {number}" for number in range(20)])

    assert standing is Standing.INVALID
    served = Counter(record.account for record in bench.records)
    assert served == {"b": 11, "login": 10}


async def test_an_auth_server_in_trouble_leaves_turns_to_others_and_is_asked_again_later(
    path: Path, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    server = AuthServer([(500, b"a secret page")])
    async with service(server) as refresher:
        pool = [shared_login(path, refresher), account("b")]
        bench = Bench(nursery, *[answer()] * 25, accounts=pool)
        await turns(bench, *["thread"] * 5)
        asked = len(server.asked)
        server.answers = [tokens(access(2))]
        await trio.sleep(60)
        await turns(bench, *[f"thread {number}" for number in range(20)])

    served = [record.account for record in bench.records]
    assert served[:5] == ["b"] * 5
    assert asked == 1
    assert len(server.asked) == 2
    assert "login: its login could not be refreshed" in caplog.text
    assert "status 500\n" in caplog.text
    assert served.count("login") >= 9
    assert bench.outcomes == [Outcome.COMPLETED] * 25


@both
async def test_a_client_that_leaves_during_a_refresh_takes_nothing_along(
    transport: Transport, path: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    server = AuthServer([tokens(access(2))], seconds=5)
    async with service(server) as refresher:
        only = shared_login(path, refresher)
        bench = Bench(nursery, answer(), accounts=[only])
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


# A conversation that moves.


@pytest.mark.parametrize("how", ["spent", "paused", "removed"])
async def test_a_socket_goes_on_elsewhere_with_everything_that_was_said(
    how: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, saying("resp_1", SAID), accounts=[account("a"), account("b")])
    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    accounts = bench.runtime.accounts
    match how:
        case "paused":
            accounts.pause(AccountId("a"), paused=True)
        case "removed":
            accounts.remove(AccountId("a"))
        case _:
            bench.upstream.will(spent())
    bench.upstream.will(saying("resp_2"), saying("resp_3"))

    await socket.complete_turn(create(message("two"), previous="resp_1"))
    await socket.complete_turn(create(message("three"), previous="resp_2"))

    assert bench.input_of(-2) == [message("one"), SAID, message("two")]
    assert bench.input_of(-1) == [message("one"), SAID, message("two"), message("three")]
    assert served_by(bench)[-2:] == ["b", "b"]
    assert [(move, why) for _, move, why in moves(bench)[1:]] == [
        ("rebound", {"spent": "quota"}.get(how, how)),
        ("reused", "bound"),
    ]
    assert socket.closed_with is None


@both
async def test_two_models_of_one_thread_keep_an_account_each_however_they_alternate(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account("a"), account("b")]
    bench = Bench(
        nursery, *[answer()] * 8, accounts=pool, routing=RoutingSettings(strategy="round_robin")
    )
    socket = bench.socket()

    for _ in range(4):
        for model in ("gpt-5.5", "gpt-6-sol"):
            if transport is Transport.HTTP:
                await bench.post(post(model=model)).wait_for("response.completed")
            else:
                await socket.complete_turn(create(model=model))

    assert served_by(bench) == ["a", "b"] * 4


async def test_200_one_off_children_stay_with_their_conversation(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pool = [account("a", 20), account("b", 10), account("c", 15)]
    bench = Bench(nursery, *[answer()] * 201, accounts=pool)
    await turns(bench, "root")

    for number in range(200):
        child = bench.post(thread=f"child {number}", session="root", parent="root")
        await child.wait_for("response.completed")
        await trio.sleep(20)

    assert Counter(served_by(bench)) == {"b": 201}


# Quota.


@both
async def test_a_refusal_of_hours_is_passed_on_at_once_with_its_hint(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    no = rejecting(429, b'{"error":{"code":"x","message":"no"}}', (b"retry-after", b"7200"))
    bench = Bench(nursery, no, accounts=[account("a")])
    began = trio.current_time()

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)

    assert (client.refused.status, client.refused.retry_after) == (429, "7200")
    assert trio.current_time() - began < 1


async def test_quota_of_one_model_stays_refused_over_a_restart_and_stops_no_other(
    nursery: trio.Nursery, autojump_clock: MockClock, tmp_path: Path
) -> None:
    no = b'{"error":{"code":"insufficient_quota","message":"no quota for gpt-5.5."}}'
    bench = Bench(nursery, rejecting(429, no), accounts=[account("a")])
    await bench.post().wait_returned()
    known = remembered(tmp_path, bench.runtime.accounts.scribe).accounts[AccountId("a")]
    spec = AccountSpec(key="env:UNUSED")
    after = Account(AccountId("a"), spec, FakeCredential("a"), AccountHealth(known))
    again = Bench(nursery, answer(), accounts=[after])

    refused = again.post()
    await refused.wait_returned()
    other = again.post(post(model="gpt-6-sol"))
    await other.wait_for("response.completed")

    assert refused.refused.reason == "accounts_spent"
    assert len(again.upstream.sent) == 1


@both
async def test_a_probe_whose_client_leaves_makes_room_for_the_next(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, spent(5 * 86_400), accounts=[account("a")])
    await bench.post().wait_returned()
    await trio.sleep(301)
    bench.upstream.will(Script((trio.Event(),)), answer())
    probe = await bench.turn(transport, thread="one")
    await wait_all_tasks_blocked()
    refused = bench.post(thread="two")
    await refused.wait_returned()

    await probe.hang_up()
    await probe.wait_returned()
    await turns(bench, "three", transport=transport)

    assert refused.refused.reason == "accounts_spent"
    assert bench.outcomes[1:] == [Outcome.REFUSED, Outcome.CLIENT_GONE, Outcome.COMPLETED]
    assert moves(bench)[-1] == ("a", "new", "probe")


# Transport faults.


@both
@pytest.mark.parametrize("rest", [(), (created(),)], ids=["before", "after the first event"])
async def test_resets_do_not_put_the_only_account_out_of_service(
    transport: Transport,
    rest: tuple[bytes, ...],
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    pool = [account("a")]
    sends = 6 if rest else 12
    reset = streaming(*rest, UpstreamCut("reset"))
    bench = Bench(nursery, *[reset] * sends, answer(), accounts=pool)
    for number in range(6):
        client = await bench.turn(transport, thread=f"thread {number}")
        await client.wait_until(lambda: client.returned or "error" in client.types)  # noqa: B023
        assert pool[0].in_flight == 0

    began = trio.current_time()
    await turns(bench, "another", transport=transport)

    assert len(bench.upstream.sent) == sends + 1
    assert bench.outcomes[-1] is Outcome.COMPLETED
    assert trio.current_time() - began < 1


# However a turn ends, its account is given back.


ENDINGS: Mapping[str, tuple[Script, Outcome]] = MappingProxyType(
    {
        "done": (answer(), Outcome.COMPLETED),
        "failed": (streaming(created(), failed()), Outcome.FAILED),
        "refused": (rejecting(400, b"{}"), Outcome.UPSTREAM_REFUSED),
        "cut": (streaming(created(), UpstreamCut("reset")), Outcome.CUT),
        "raised": (streaming(created(), RuntimeError("a bug")), Outcome.BROKEN),
        "first event late": (streaming(trio.Event()), Outcome.UPSTREAM_FAILED),
        "silent": (streaming(created(), trio.Event()), Outcome.CUT),
    }
)


@both
@pytest.mark.parametrize("how", ENDINGS)
async def test_an_account_is_given_back_when_a_turn_ends_by_itself(
    how: str, transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    script, outcome = ENDINGS[how]
    only = account("a")
    bench = Bench(nursery, script, accounts=[only])

    client = await bench.turn(transport)
    await client.wait_until(lambda: bench.outcomes)

    assert bench.outcomes == [outcome]
    assert only.in_flight == 0
    await client.hang_up()
    await client.wait_returned()
    assert bench.at_rest


@both
@pytest.mark.parametrize("rest", [(), (created(),)], ids=["before", "after the first event"])
async def test_an_account_is_given_back_when_its_client_leaves(
    transport: Transport,
    rest: tuple[bytes, ...],
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    only = account("a")
    bench = Bench(nursery, streaming(*rest, trio.Event()), accounts=[only])
    client = await bench.turn(transport)
    await wait_all_tasks_blocked()
    running = only.in_flight

    await client.hang_up()
    await client.wait_returned()

    assert (running, only.in_flight) == (1, 0)
    assert bench.at_rest


async def test_a_turn_that_replaces_another_holds_its_account_alone(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    only = account("a")
    waiting = streaming(created("resp_1"), trio.Event())
    bench = Bench(nursery, waiting, waiting, answer("resp_2"), accounts=[only])
    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    await socket.say(create(message("instead")))
    await socket.wait_for("response.created", 2)
    running = only.in_flight

    await socket.complete_turn(create(message("at last")))

    assert (running, only.in_flight) == (1, 0)
    assert bench.outcomes == [Outcome.REPLACED, Outcome.REPLACED, Outcome.COMPLETED]


@both
async def test_an_account_is_given_back_when_the_service_ends(
    transport: Transport, autojump_clock: MockClock
) -> None:
    only = account("a")
    async with trio.open_nursery() as service_nursery:
        bench = Bench(service_nursery, streaming(created(), trio.Event()), accounts=[only])
        client = await bench.turn(transport)
        await client.wait_for("response.created")
        running = only.in_flight
        service_nursery.cancel_scope.cancel()

    assert (running, only.in_flight) == (1, 0)
    assert (bench.turns, bench.lanes, bench.upstream.running) == (0, 0, 0)


async def test_an_increment_over_http_goes_up_as_it_came(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    wants = call("call_1")
    bench = Bench(nursery, saying("resp_1", wants), answer("resp_2"), accounts=[account("a")])
    await bench.post(post(input=[message("x" * 100_000)])).wait_for("response.completed")
    increment = post(previous_response_id="resp_1", input=[call_output("call_1")])

    await bench.post(increment).wait_for("response.completed")

    assert bench.upstream.sent[1].body == increment
    assert bench.records[1].bytes_up == len(increment)
