"""From one upstream reply to its client: what commits, what ends, and what is read and dropped."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from proxy.responses.events import TokenUsage
from proxy.turn.send import LINGER_SECONDS, REJECTION_BYTES
from tests.testkit.events import completed, created, delta, sse
from tests.testkit.runtime import TRANSPORTS, Bench
from tests.testkit.upstream import JSON, STREAM, Script, answer, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
async def test_any_chunking_of_a_stream_comes_out_alike(
    size: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    whole = created() + b": note\r\n\r\n" + delta("\u00e9") + completed()
    pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
    bench = Bench(nursery, streaming(*pieces))

    client = bench.post()
    await client.wait_returned()

    assert client.body == whole
    assert bench.outcomes == [Outcome.COMPLETED]


async def test_a_stream_that_is_its_own_end_is_a_whole_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(completed()))

    client = bench.post()
    await client.wait_returned()

    assert (client.status, client.body, client.complete) == (200, completed(), True)


async def test_a_last_event_without_its_blank_line_counts_if_it_is_whole(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), completed().rstrip(b"\n")))

    client = bench.post()
    await client.wait_returned()

    assert bench.outcomes == [Outcome.COMPLETED]
    assert client.body.startswith(created() + completed().rstrip(b"\n"))


async def test_what_follows_the_end_is_read_and_dropped(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), completed(), delta("late"), b"data: [DONE]\n\n"))

    client = bench.post()
    await client.wait_returned()

    assert client.body == created() + completed()
    assert bench.upstream.sent[0].exhausted


async def test_an_upstream_that_goes_on_after_its_end_is_left_after_a_moment(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    chatter = [step for _ in range(1000) for step in (0.001, delta("more"))]
    bench = Bench(nursery, streaming(created(), completed(), *chatter))

    client = bench.post()
    await client.wait_returned()

    assert client.body == created() + completed()
    assert trio.current_time() == pytest.approx(LINGER_SECONDS)
    assert bench.upstream.sent[0].closed
    assert not bench.upstream.sent[0].exhausted


async def test_the_head_leaves_with_the_first_event_and_not_before(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    half, rest = created()[:20], created()[20:]
    bench = Bench(nursery, streaming(half, 5.0, rest, completed()))

    client = bench.post()
    await trio.sleep(4)
    before = client.status
    await client.wait_for("response.created")

    assert before is None
    assert (client.status, trio.current_time()) == (200, 5)


async def test_only_headers_that_may_come_down_do(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    headers = (
        *STREAM,
        (b"X-Request-Id", b"r"),
        (b"x-codex-websocket-max-message-bytes", b"1"),
        (b"x-ratelimit-remaining-tokens", b"9"),
        (b"set-cookie", b"c"),
        (b"retry-after", b"0.5"),
    )
    bench = Bench(nursery, Script([created(), completed()], headers=headers))

    client = bench.post()
    await client.wait_returned()

    assert client.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "x-request-id": "r",
        "x-ratelimit-remaining-tokens": "9",
        "retry-after": "1",
    }


@pytest.mark.parametrize(
    ("kind", "status"), [(b"application/json", 200), (b"text/html; charset=utf-8", 502)]
)
async def test_a_page_in_place_of_a_stream_is_a_failure_and_a_document_is_passed_on(
    kind: bytes, status: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    page = Script([b'{"hello":1}'], headers=((b"content-type", kind),))
    bench = Bench(nursery, page)

    client = bench.post()
    await client.wait_returned()

    assert (client.status, client.complete) == (status, True)
    assert status == 200 or client.refused.code == "upstream_unusable"


@pytest.mark.parametrize("status", [302, 400, 429, 500])
async def test_any_status_but_2xx_is_passed_on_with_its_body(
    status: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b"wo", b"rds"], status=status, headers=JSON))

    client = bench.post()
    await client.wait_returned()

    assert (client.status, client.body, client.complete) == (status, b"words", True)
    assert client.headers == {"content-type": "application/json", "content-length": "5"}


async def test_a_refusal_that_came_in_time_keeps_its_status_while_its_words_are_slow(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    late = Script([b"wo", 8.0, b"rds"], status=429, headers=JSON, before=[115.0])
    bench = Bench(nursery, late)

    client = bench.post()
    await client.wait_returned()

    assert (client.status, client.body, client.complete) == (429, b"words", True)


async def test_of_an_endless_refusal_a_mebibyte_is_passed_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b"x" * 2**18] * 10, status=400, headers=JSON))

    client = bench.post()
    await client.wait_returned()

    assert len(client.body) == REJECTION_BYTES
    assert not bench.upstream.sent[0].exhausted


async def test_a_whole_answer_that_is_cut_is_visibly_cut(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b'{"id":', UpstreamCut("reset")], headers=JSON), answer())

    client = bench.post(b'{"stream":false}')
    await client.wait_returned()

    assert (client.body, client.complete) == (b'{"id":', False)
    assert bench.outcomes == [Outcome.CUT]
    assert len(bench.upstream.sent) == 1


async def test_a_slow_client_slows_its_upstream_down(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    chunk = delta("x" * 100_000)
    go = trio.Event()
    bench = Bench(nursery, streaming(created(), go, *[chunk] * 20, completed()))

    client = bench.post()
    await client.wait_for("response.created")
    client.stop_reading()
    go.set()
    await wait_all_tasks_blocked()
    running = bench.upstream.running
    client.read_on()
    await client.wait_returned()

    assert running == 1
    assert client.body == created() + chunk * 20 + completed()


@both
async def test_usage_that_is_missing_is_unknown_and_not_zero(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B75."""
    done = sse({"type": "response.completed", "response": {"id": "resp_1"}})
    bench = Bench(nursery, streaming(created(), done))

    client = await bench.turn(transport)
    await client.wait_for("response.completed")

    assert bench.records[0].usage == TokenUsage()
    assert "usage" not in client.events[-1]["response"]


@both
async def test_partial_usage_is_completed_on_the_wire_and_recorded_as_it_came(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B69."""
    bench = Bench(nursery, streaming(created(), completed(usage={"input_tokens": 5})))

    client = await bench.turn(transport)
    await client.wait_for("response.completed")

    usage = client.events[-1]["response"]["usage"]
    assert usage["output_tokens"] == 0
    assert usage["total_tokens"] == 5
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}
    assert bench.records[0].usage == TokenUsage(input_tokens=5)
