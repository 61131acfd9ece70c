"""One HTTP exchange: what goes up, what comes down, and when."""

import gzip
import json
import zlib

import pytest
import trio
import zstandard
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome
from tests.testkit.events import completed, created, delta, failed, post
from tests.testkit.runtime import Bench
from tests.testkit.upstream import JSON, Script, answer, rejecting, streaming


async def test_a_turn_goes_up_and_comes_down_byte_for_byte(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    odd = b'{ "model":"gpt-5.5", "stream" : true,"new_key":{"a":1,"a":2},"input":"\\u00e9" }'
    events = (b": hello\n\n", created(), b"event: x\ndata:  {}\nid: 7\n\n", delta(), completed())
    bench = Bench(nursery, streaming(*events))

    client = bench.post(odd, query=b"q=1&q=2")
    await client.wait_returned()

    sent = bench.upstream.sent[0]
    assert sent.body == odd
    assert sent.request.query == b"q=1&q=2"
    assert (sent.request.method, sent.request.path) == ("POST", "/responses")
    assert sent.request.streamed
    assert client.body == b"".join(events)
    assert client.headers == {"content-type": "text/event-stream; charset=utf-8"}
    assert (bench.records[0].bytes_up, bench.records[0].bytes_down) == (
        len(odd),
        len(client.body),
    )


async def test_the_headers_that_keep_a_prompt_cache_warm_go_up_unchanged(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B79."""
    given = [
        ("x-codex-turn-state", "state"),
        ("x-codex-window-id", "w:0"),
        ("x-client-request-id", "thread"),
        ("chatgpt-account-id", "account"),
        ("authorization", "Bearer secret"),
    ]
    bench = Bench(nursery, answer())

    client = bench.post(
        post(prompt_cache_key="key", previous_response_id="resp_0"),
        headers=[*given, ("cookie", "c"), ("x-forwarded-for", "1.2.3.4"), ("expect", "x")],
    )
    await client.wait_returned()

    sent = bench.upstream.sent[0]
    up = {name.decode(): value.decode() for name, value in sent.request.headers}
    assert dict(given).items() <= up.items()
    assert (up["thread-id"], up["session-id"]) == ("thread", "session")
    assert up["accept"] == "text/event-stream"
    assert up.keys().isdisjoint({"cookie", "x-forwarded-for", "expect", "host", "content-length"})
    assert json.loads(sent.body)["prompt_cache_key"] == "key"
    assert json.loads(sent.body)["previous_response_id"] == "resp_0"


async def test_a_whole_answer_is_a_turn_too(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b'{"id":', 250.0, b'"resp_1"}'], headers=JSON))

    client = bench.post(post(stream=False))
    await client.wait_returned()

    assert (client.status, client.body, client.complete) == (200, b'{"id":"resp_1"}', True)
    assert client.headers["content-type"] == "application/json"
    assert not bench.upstream.sent[0].request.streamed
    assert bench.upstream.sent[0].header("accept") == ["application/json"]
    assert bench.outcomes == [Outcome.COMPLETED]
    assert bench.at_rest


@pytest.mark.parametrize(("seconds", "status"), [(599.0, 200), (601.0, 504)])
async def test_a_whole_answer_may_take_600_seconds_to_begin(
    seconds: float, status: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b"{}"], headers=JSON, before=[seconds]))

    client = bench.post(post(stream=False))
    await client.wait_returned()

    assert client.status == status
    assert trio.current_time() == pytest.approx(min(seconds, 600))


async def test_an_empty_whole_answer_has_an_end(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script(headers=JSON))

    client = bench.post(post(stream=False))
    await client.wait_returned()

    assert (client.status, client.body, client.complete) == (200, b"", True)
    assert bench.at_rest


async def test_a_stream_that_its_client_did_not_ask_for_is_passed_on_as_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer())

    client = bench.post(post(stream=False))
    await client.wait_returned()

    assert client.types[-1] == "response.completed"
    assert bench.outcomes == [Outcome.COMPLETED]


async def test_an_answer_without_a_content_type_is_a_stream_if_one_was_asked_for(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([created(), 25.0, completed()], headers=()))

    client = bench.post()
    await client.wait_returned()

    assert b'data: {"type":"keepalive"}' in client.body
    assert client.body.endswith(completed())


async def test_no_header_and_no_filler_leave_before_the_first_event(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field cases B63 and B64."""
    bench = Bench(nursery, streaming(b": beat\n\n", 30.0, b": beat\n\n", 30.0, created(), 50.0))

    client = bench.post()
    await trio.sleep(59)
    before = (client.status, list(client.chunks))
    await client.wait_for("response.created")
    await client.wait_returned()

    assert before == (None, [])
    assert client.types == ["response.created", "keepalive", "keepalive"]
    assert client.seen_at == pytest.approx([60, 80, 100])
    assert client.chunks[0] == b": beat\n\n: beat\n\n" + created()


async def test_a_late_refusal_still_has_its_status_behind_heartbeats(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B64: the stream that only beat breaks, and the next send is refused."""
    beating = streaming(b": beat\n\n", 30.0, b": beat\n\n", UpstreamCut("reset"))
    busy = rejecting(429, b'{"error":{"code":"slow_down","message":"later"}}')
    bench = Bench(nursery, beating, busy)

    client = bench.post()
    await client.wait_returned()

    assert (client.refused.status, client.refused.code) == (429, "slow_down")
    assert len(bench.upstream.sent) == 2


async def test_a_refusal_that_takes_its_time_still_has_its_status(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B64."""
    bench = Bench(nursery, Script([b"no"], status=429, headers=(), before=[60.0]))

    client = bench.post()
    await client.wait_returned()

    assert (client.status, client.body, client.complete) == (429, b"no", True)


async def test_an_overload_inside_a_stream_is_one_stream(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B65, without a sibling to go to."""
    bench = Bench(nursery, streaming(created(), failed(code="server_is_overloaded")))

    client = bench.post()
    await client.wait_returned()

    assert client.types == ["response.created", "response.failed"]
    assert len(bench.upstream.sent) == 1


async def test_a_whole_answer_gets_no_filler(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b"{", 250.0, b"}"], headers=JSON))

    client = bench.post(post(stream=False))
    await client.wait_returned()

    assert client.body == b"{}"


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("zstd", zstandard.compress),
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("identity", bytes),
        ("gzip, zstd", lambda body: zstandard.compress(gzip.compress(body))),
    ],
)
async def test_a_compressed_body_goes_up_plain(
    coding: str, encode: object, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B77."""
    assert callable(encode)
    bench = Bench(nursery, answer())

    client = bench.post(encode(post()), headers=[("content-encoding", coding)])
    await client.wait_returned()

    assert client.types[-1] == "response.completed"
    assert bench.upstream.sent[0].body == post()
    assert bench.upstream.sent[0].header("content-encoding") == []
    assert bench.at_rest


@pytest.mark.parametrize("path", ["/v1/responses", "/backend-api/codex/responses"])
async def test_the_data_plane_has_two_addresses(
    path: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer())

    client = bench.post(path=path)
    await client.wait_returned()

    assert client.status == 200


async def test_transport_deaths_in_mid_stream_give_every_place_back(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B05."""
    cuts = [streaming(created(), UpstreamCut("reset by peer")) for _ in range(4)]
    bench = Bench(nursery, *cuts, answer(), limits=Limits(turns=4))

    clients = [bench.post(thread=f"thread {i}") for i in range(4)]
    await wait_all_tasks_blocked()
    held = bench.turns
    normal = bench.post()
    await normal.wait_returned()

    assert held == 0
    assert not any(client.complete for client in clients)
    assert normal.types[-1] == "response.completed"
    assert bench.at_rest


async def test_a_turn_straight_after_a_slow_compaction_is_admitted(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B12."""
    compaction = streaming(100.0, created("resp_2"), 50.0, completed("resp_2"))
    bench = Bench(nursery, answer("resp_1"), compaction, answer("resp_3"))

    for _ in range(3):
        client = bench.post()
        await client.wait_for("response.completed")

    assert bench.outcomes == [Outcome.COMPLETED] * 3
    assert bench.runtime.admission.statistics().turns.refused == 0
