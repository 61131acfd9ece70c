"""How the upstream can end a turn, over both transports: nothing held, one record, told once."""

import logging

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from proxy.responses.events import TokenUsage
from tests.testkit.asgi import Client
from tests.testkit.events import completed, created, delta, failed, incomplete, sse
from tests.testkit.runtime import TRANSPORTS, Bench
from tests.testkit.upstream import UNREACHABLE, Script, Step, answer, failing, rejecting, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)

ERROR = sse({"type": "error", "code": "server_error", "message": "the model tripped"})
BUSY = b'{"error":{"code":"rate_limit_exceeded","message":"slow down"}}'


async def ended(bench: Bench, client: Client) -> None:
    """The turn holds nothing any more; then its client goes, and nothing at all is left."""
    await wait_all_tasks_blocked()
    assert (bench.turns, bench.lanes, bench.upstream.running) == (0, 0, 0)
    await client.hang_up()
    await client.wait_returned()
    assert bench.at_rest


@both
async def test_a_completed_turn_is_streamed_and_recorded_with_its_tokens(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer())

    client = await bench.turn(transport)
    await client.wait_for("response.completed")
    await ended(bench, client)

    (record,) = bench.records
    assert client.types == ["response.created", "response.output_text.delta", "response.completed"]
    assert client.complete is (transport is Transport.HTTP)
    assert record.outcome is Outcome.COMPLETED
    assert record.usage == TokenUsage(input_tokens=100, cached_tokens=80, output_tokens=7)
    assert (record.transport, record.attempts, record.status) == (transport, 1, 200)
    assert record.model == "gpt-5.5"


@both
@pytest.mark.parametrize(
    ("last", "outcome"),
    [(failed(), Outcome.FAILED), (incomplete(), Outcome.INCOMPLETE), (ERROR, Outcome.FAILED)],
    ids=["failed", "incomplete", "error"],
)
async def test_a_turn_that_ends_badly_upstream_ends_with_that_event(
    transport: Transport,
    last: bytes,
    outcome: Outcome,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    bench = Bench(nursery, streaming(created(), last, delta("nothing follows the end")))

    client = await bench.turn(transport)
    await client.wait_until(lambda: len(client.events) == 2)
    await ended(bench, client)

    assert bench.outcomes == [outcome]
    assert client.types[1].encode() in last
    assert len(client.events) == 2
    assert client.complete is (transport is Transport.HTTP)
    assert bench.upstream.sent[0].closed


async def test_an_error_event_over_http_passes_byte_for_byte(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), ERROR))

    client = bench.post()
    await client.wait_returned()

    assert client.body == created() + ERROR


async def test_an_error_event_over_a_websocket_gets_the_status_that_makes_codex_read_it(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    bench = Bench(nursery, streaming(created(), ERROR))

    client = await bench.turn(Transport.WEBSOCKET)
    await client.wait_for("error")

    assert client.refused.status == 502
    assert client.refused.message == "the model tripped"
    assert client.refused.retry_after == "2"


@both
@pytest.mark.parametrize(
    ("script", "status", "retry_after"),
    [
        (rejecting(429, BUSY, (b"retry-after", b"3")), 429, "3"),
        (rejecting(429, BUSY, (b"retry-after-ms", b"1200")), 429, "2"),
        (rejecting(429, BUSY), 429, None),
        (rejecting(400, BUSY), 400, None),
        (rejecting(503, BUSY, (b"retry-after", b"0")), 503, "1"),
    ],
    ids=["429 in 3 s", "429 in 1200 ms", "429", "400", "503 at once"],
)
async def test_a_refusal_of_the_upstream_keeps_its_status_code_and_words(
    transport: Transport,
    script: Script,
    status: int,
    retry_after: str | None,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    bench = Bench(nursery, script)

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)
    refused = client.refused
    await ended(bench, client)

    (record,) = bench.records
    assert (refused.status, refused.retry_after) == (status, retry_after)
    assert (refused.code, refused.message) == ("rate_limit_exceeded", "slow down")
    assert refused.reason is None
    assert (record.outcome, record.status) == (Outcome.UPSTREAM_REFUSED, status)
    assert record.attempts == 1


@pytest.mark.parametrize(
    ("transport", "advice"), [(Transport.HTTP, None), (Transport.WEBSOCKET, "2")]
)
async def test_a_5xx_without_advice_gets_some_over_a_websocket(
    transport: Transport, advice: str | None, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, rejecting(500, BUSY))

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)

    assert (client.refused.status, client.refused.retry_after) == (500, advice)


@both
@pytest.mark.parametrize("status", [502, 504])
async def test_an_upstream_that_cannot_be_reached_is_said_to_be_so(
    transport: Transport, status: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, failing(), failing(UNREACHABLE))

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)
    refused = client.refused
    await ended(bench, client)

    assert (refused.status, refused.code) == (502, "upstream_unreachable")
    assert refused.retry_after == "2"
    assert refused.reason is None
    assert bench.outcomes == [Outcome.UPSTREAM_FAILED]


@both
@pytest.mark.parametrize("mid_stream", [False, True], ids=["before the head", "in mid-stream"])
async def test_a_bug_in_our_own_code_is_logged_and_told_as_a_500(
    transport: Transport,
    mid_stream: bool,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bug = ValueError("a bug of ours")
    script = streaming(created(), bug) if mid_stream else Script(before=[bug])
    bench = Bench(nursery, script)

    client = await bench.turn(transport)
    await wait_all_tasks_blocked()
    await ended(bench, client)

    assert bench.outcomes == [Outcome.BROKEN]
    assert "a bug of ours" in caplog.text
    assert any(record.levelno == logging.ERROR for record in caplog.records)
    if mid_stream and transport is Transport.HTTP:
        assert client.types == ["response.created"]
        assert not client.complete
    else:
        assert (client.refused.status, client.refused.code) == (500, "internal_error")
        assert client.refused.retry_after == "2"


@both
async def test_a_bug_behind_the_end_of_a_turn_is_logged_and_the_end_stands(
    transport: Transport,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(nursery, streaming(created(), completed(), ValueError("a bug in closing")))

    client = await bench.turn(transport)
    await client.wait_for("response.completed")
    await ended(bench, client)

    assert bench.outcomes == [Outcome.COMPLETED]
    assert "a bug in closing" in caplog.text


@both
@pytest.mark.parametrize(
    "rest", [[UpstreamCut("reset by peer")], []], ids=["reset", "an early end"]
)
async def test_a_cut_stream_is_visibly_cut(
    transport: Transport, rest: list[Step], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), delta(), *rest))

    client = await bench.turn(transport)
    await wait_all_tasks_blocked()
    seen = list(client.types)
    await ended(bench, client)

    assert bench.outcomes == [Outcome.CUT]
    assert seen[:2] == ["response.created", "response.output_text.delta"]
    if transport is Transport.HTTP:
        assert seen[2:] == []
        assert client.returned
        assert not client.complete
    else:
        assert seen[2:] == ["error"]
        assert (client.refused.status, client.refused.retry_after) == (502, "1")


@both
@pytest.mark.parametrize(
    "script",
    [Script(before=[trio.Event()]), streaming(trio.Event()), streaming(b": hi\n\n", trio.Event())],
    ids=["no head", "no event", "only a comment"],
)
async def test_an_upstream_without_a_first_event_is_given_up_after_120_seconds(
    transport: Transport, script: Script, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, script)
    began = trio.current_time()

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or "error" in client.types)
    refused = client.refused
    seconds = trio.current_time() - began
    await ended(bench, client)

    assert seconds == pytest.approx(120)
    assert (refused.status, refused.code) == (504, "upstream_timeout")
    assert refused.retry_after == "2"
    assert bench.outcomes == [Outcome.UPSTREAM_FAILED]
    assert len(bench.upstream.sent) == 1


@both
async def test_an_upstream_that_falls_silent_is_cut_after_300_seconds(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), 200.0, delta(), trio.Event()))
    began = trio.current_time()

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.returned or "error" in client.types)
    seconds = trio.current_time() - began
    await ended(bench, client)

    assert seconds == pytest.approx(500)
    assert bench.outcomes == [Outcome.CUT]
    assert not client.complete
    assert transport is Transport.HTTP or client.refused.status == 502
