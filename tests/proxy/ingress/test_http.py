"""One HTTP exchange: what goes up, what comes down, and when."""

import gzip
import zlib
from collections.abc import Callable

import pytest
import trio
import zstandard
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome
from tests.testkit.events import completed, created, delta, failed, post
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import JSON, Script, answer, rejecting, streaming


async def test_a_turn_goes_up_and_comes_down_byte_for_byte(bench: Bench) -> None:
    odd = b'{ "model":"gpt-5.5", "stream" : true,"new_key":{"a":1,"a":2},"input":"\\u00e9" }'
    events = (b": hello\n\n", created(), b"event: x\ndata:  {}\nid: 7\n\n", delta(), completed())
    bench.upstream.will(streaming(*events))

    client = await bench.post(odd, query=b"q=1&q=2").wait_returned()

    sent = bench.upstream.sent[0]
    assert (sent.body, sent.request.query) == (odd, b"q=1&q=2")
    assert (sent.request.method, sent.request.path) == ("POST", "/responses")
    assert sent.request.streamed
    assert client.body == b"".join(events)
    assert client.headers == {"content-type": "text/event-stream; charset=utf-8"}
    (record,) = bench.records
    assert (record.bytes_up, record.bytes_down) == (len(odd), len(client.body))


async def test_what_keeps_a_prompt_cache_warm_goes_up_unchanged(bench: Bench) -> None:
    """Field case B79."""
    given = [("x-codex-turn-state", "state"), ("authorization", "Bearer secret")]
    bench.upstream.will(answer())

    body = post(prompt_cache_key="key", previous_response_id="resp_0")
    await bench.post(body, headers=[*given, ("cookie", "c")]).wait_returned()

    sent = bench.upstream.sent[0]
    up = {name.decode(): value.decode() for name, value in sent.request.headers}
    assert dict(given).items() <= up.items()
    assert (up["thread-id"], up["session-id"]) == ("thread", "session")
    assert up["accept"] == "text/event-stream"
    assert up.keys().isdisjoint({"cookie", "host", "content-length"})
    assert sent.body == body


async def test_events_that_arrive_together_leave_together(bench: Bench) -> None:
    chunk = b": hi\n\n" + delta("one") + delta("two")
    bench.upstream.will(streaming(created(), 1.0, chunk, 1.0, completed()))

    client = await bench.post().wait_returned()

    assert client.chunks == [created(), chunk, completed()]


# Answers that are not streams.


async def test_a_whole_answer_is_a_turn_and_gets_no_filler(bench: Bench) -> None:
    bench.upstream.will(Script([b'{"id":', 250.0, b'"resp_1"}'], headers=JSON))

    client = await bench.post(post(stream=False)).wait_returned()

    assert (client.status, client.body, client.complete) == (200, b'{"id":"resp_1"}', True)
    assert client.headers["content-type"] == "application/json"
    assert not bench.upstream.sent[0].request.streamed
    assert bench.upstream.sent[0].header("accept") == ["application/json"]
    assert bench.outcomes == [Outcome.COMPLETED]
    assert bench.at_rest


@pytest.mark.parametrize(("seconds", "status"), [(599.0, 200), (601.0, 504)])
async def test_a_whole_answer_may_take_600_seconds_to_begin(
    seconds: float, status: int, bench: Bench
) -> None:
    bench.upstream.will(Script([b"{}"], headers=JSON, before=[seconds]))

    client = await bench.post(post(stream=False)).wait_returned()

    assert client.status == status
    assert trio.current_time() == pytest.approx(min(seconds, 600))


async def test_an_empty_whole_answer_has_an_end(bench: Bench) -> None:
    bench.upstream.will(Script(headers=JSON))

    client = await bench.post(post(stream=False)).wait_returned()

    assert (client.status, client.body, client.complete) == (200, b"", True)
    assert bench.at_rest


async def test_a_stream_that_was_not_asked_for_is_passed_on_as_one(bench: Bench) -> None:
    bench.upstream.will(answer())

    client = await bench.post(post(stream=False)).wait_returned()

    assert client.types[-1] == "response.completed"
    assert bench.outcomes == [Outcome.COMPLETED]


async def test_an_answer_without_a_content_type_is_a_stream_if_one_was_asked_for(
    bench: Bench,
) -> None:
    bench.upstream.will(Script([created(), 25.0, completed()], headers=()))

    client = await bench.post().wait_returned()

    assert b'data: {"type":"keepalive"}' in client.body
    assert client.body.endswith(completed())


# When the status leaves.


async def test_no_header_and_no_filler_leave_before_the_first_event(bench: Bench) -> None:
    """Field cases B63 and B64."""
    bench.upstream.will(streaming(b": beat\n\n", 30.0, b": beat\n\n", 30.0, created(), 50.0))

    client = bench.post()
    await trio.sleep(59)
    before = (client.status, list(client.chunks))
    await client.wait_returned()

    assert before == (None, [])
    assert client.types == ["response.created", "keepalive", "keepalive"]
    assert client.seen_at == pytest.approx([60, 80, 100])
    assert client.chunks[0] == b": beat\n\n: beat\n\n" + created()


async def test_a_refusal_after_comments_alone_still_has_its_status(bench: Bench) -> None:
    """Field case B64: a stream with nothing but comments breaks, and the next send is refused."""
    beating = streaming(b": beat\n\n", 30.0, b": beat\n\n", UpstreamCut("reset"))
    busy = rejecting(429, b'{"error":{"code":"slow_down","message":"later"}}')
    bench.upstream.will(beating, busy)

    client = await bench.post().wait_returned()

    assert (client.refused.status, client.refused.code) == (429, "slow_down")
    assert len(bench.upstream.sent) == 2


async def test_a_refusal_that_takes_its_time_still_has_its_status(bench: Bench) -> None:
    """Field case B64."""
    bench.upstream.will(Script([b"no"], status=429, headers=(), before=[60.0]))

    client = await bench.post().wait_returned()

    assert (client.status, client.body, client.complete) == (429, b"no", True)


async def test_an_overload_inside_a_stream_is_one_stream(bench: Bench) -> None:
    """Field case B65, without another account to go to."""
    bench.upstream.will(streaming(created(), failed(code="server_is_overloaded")))

    client = await bench.post().wait_returned()

    assert client.types == ["response.created", "response.failed"]
    assert len(bench.upstream.sent) == 1


# The rest.


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
    coding: str, encode: Callable[[bytes], bytes], bench: Bench
) -> None:
    """Field case B77."""
    bench.upstream.will(answer())

    client = bench.post(encode(post()), headers=[("content-encoding", coding)])
    await client.wait_returned()

    assert client.types[-1] == "response.completed"
    assert bench.upstream.sent[0].body == post()
    assert bench.upstream.sent[0].header("content-encoding") == []
    assert bench.at_rest


async def test_the_data_plane_has_a_second_path(bench: Bench) -> None:
    bench.upstream.will(answer())

    client = await bench.post(path="/backend-api/codex/responses").wait_returned()

    assert client.status == 200


async def test_streams_that_are_cut_give_every_permit_back(open_bench: OpenBench) -> None:
    """Field case B05."""
    cuts = [streaming(created(), UpstreamCut("reset by peer")) for _ in range(4)]
    bench = open_bench(*cuts, answer(), limits=Limits(turns=4))

    clients = [bench.post(thread=f"thread {i}") for i in range(4)]
    await wait_all_tasks_blocked()
    held = bench.turns
    normal = await bench.post().wait_returned()

    assert held == 0
    assert not any(client.complete for client in clients)
    assert normal.types[-1] == "response.completed"
    assert bench.at_rest


async def test_a_turn_straight_after_a_slow_compaction_is_admitted(bench: Bench) -> None:
    """Field case B12."""
    compaction = streaming(100.0, created("resp_2"), 50.0, completed("resp_2"))
    bench.upstream.will(answer("resp_1"), compaction, answer("resp_3"))

    for _ in range(3):
        await bench.post().wait_for("response.completed")

    assert bench.outcomes == [Outcome.COMPLETED] * 3
    assert bench.runtime.admission.statistics().turns.refused == 0
