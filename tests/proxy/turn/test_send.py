"""From one upstream reply to its client: what commits, what ends, and what is read and dropped."""

import pytest
import trio

from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from proxy.responses.events import TokenUsage
from proxy.turn.send import LINGER_SECONDS, REJECTION_BYTES
from tests.testkit.events import completed, created, delta
from tests.testkit.runtime import Bench
from tests.testkit.upstream import JSON, STREAM, Script, answer, streaming


async def test_a_last_event_without_its_blank_line_counts_if_it_is_whole(bench: Bench) -> None:
    bench.upstream.will(streaming(created(), completed().rstrip(b"\n")))

    client = await bench.post().wait_returned()

    assert bench.outcomes == [Outcome.COMPLETED]
    assert client.body.startswith(created() + completed().rstrip(b"\n"))


async def test_what_follows_the_end_is_read_and_dropped(bench: Bench) -> None:
    bench.upstream.will(streaming(created(), completed(), delta("late"), b"data: [DONE]\n\n"))

    client = await bench.post().wait_returned()

    assert client.body == created() + completed()
    assert bench.upstream.sent[0].exhausted


async def test_an_upstream_that_goes_on_after_its_end_is_left_after_a_moment(bench: Bench) -> None:
    chatter = [step for _ in range(1000) for step in (0.001, delta("more"))]
    bench.upstream.will(streaming(created(), completed(), *chatter))

    client = await bench.post().wait_returned()

    assert client.body == created() + completed()
    assert trio.current_time() == pytest.approx(LINGER_SECONDS)
    assert bench.upstream.sent[0].closed
    assert not bench.upstream.sent[0].exhausted


async def test_only_headers_that_may_come_down_do(bench: Bench) -> None:
    headers = (
        *STREAM,
        (b"X-Request-Id", b"r"),
        (b"x-codex-websocket-max-message-bytes", b"1"),
        (b"set-cookie", b"c"),
        (b"retry-after", b"0.5"),
    )
    bench.upstream.will(Script([created(), completed()], headers=headers))

    client = await bench.post().wait_returned()

    assert client.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "x-request-id": "r",
        "retry-after": "1",
    }


@pytest.mark.parametrize(
    ("kind", "status", "outcome"),
    [
        (b"application/json", 200, Outcome.COMPLETED),
        (b"text/html; charset=utf-8", 502, Outcome.UPSTREAM_FAILED),
    ],
)
async def test_a_page_in_place_of_a_stream_is_a_failure_and_a_document_is_passed_on(
    kind: bytes, status: int, outcome: Outcome, bench: Bench
) -> None:
    bench.upstream.will(Script([b'{"hello":1}'], headers=((b"content-type", kind),)))

    client = await bench.post().wait_returned()

    assert (client.status, client.complete, bench.outcomes) == (status, True, [outcome])
    assert status == 200 or client.refused.code == "upstream_unusable"


@pytest.mark.parametrize(("status", "seconds"), [(302, 0.0), (500, 0.0), (429, 8.0)])
async def test_a_reply_without_a_2xx_is_passed_on_with_its_body_however_slow_that_is(
    status: int, seconds: float, bench: Bench
) -> None:
    slow = Script([b"wo", seconds, b"rds"], status=status, headers=JSON, before=[115.0])
    bench.upstream.will(slow)

    client = await bench.post().wait_returned()

    assert (client.status, client.body, client.complete) == (status, b"words", True)
    assert client.headers == {"content-type": "application/json", "content-length": "5"}


async def test_of_an_endless_refusal_a_mebibyte_is_passed_on(bench: Bench) -> None:
    bench.upstream.will(Script([b"x" * 2**18] * 10, status=400, headers=JSON))

    client = await bench.post().wait_returned()

    assert len(client.body) == REJECTION_BYTES
    assert not bench.upstream.sent[0].exhausted


async def test_a_whole_answer_that_is_cut_is_visibly_cut(bench: Bench) -> None:
    bench.upstream.will(Script([b'{"id":', UpstreamCut("reset")], headers=JSON), answer())

    client = await bench.post(b'{"stream":false}').wait_returned()

    assert (client.body, client.complete) == (b'{"id":', False)
    assert bench.outcomes == [Outcome.CUT]
    assert len(bench.upstream.sent) == 1


async def test_partial_usage_is_completed_on_the_wire_and_recorded_as_it_came(
    transport: Transport, bench: Bench
) -> None:
    """Field case B69."""
    bench.upstream.will(streaming(created(), completed(usage={"input_tokens": 5})))

    client = await bench.turn(transport, until="response.completed")

    assert client.events[-1]["response"]["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }
    assert bench.records[0].usage == TokenUsage(input_tokens=5)
