"""How the upstream can end a turn, over both transports: nothing is held, one record is written."""

import logging

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from proxy.responses.events import TokenUsage
from tests.testkit.asgi import Client
from tests.testkit.events import completed, created, delta, failed, incomplete, sse
from tests.testkit.runtime import Bench
from tests.testkit.upstream import Script, Step, answer, failing, rejecting, streaming

ERROR = sse({"type": "error", "code": "server_error", "message": "the model tripped"})
BUSY = b'{"error":{"code":"rate_limit_exceeded","message":"slow down"}}'


async def ended(bench: Bench, client: Client) -> None:
    """Check that the turn holds nothing, and, once its client has left, that nothing is held."""
    await wait_all_tasks_blocked()
    assert (bench.turns, bench.lanes, bench.upstream.running) == (0, 0, 0)
    await client.hang_up()
    await client.wait_returned()
    assert bench.at_rest


async def test_a_completed_turn_is_streamed_and_recorded_with_its_tokens(
    transport: Transport, bench: Bench
) -> None:
    bench.upstream.will(answer())

    client = await bench.turn(transport, until="response.completed")
    await ended(bench, client)

    (record,) = bench.records
    assert client.types == ["response.created", "response.output_text.delta", "response.completed"]
    assert client.complete is (transport is Transport.HTTP)
    assert record.outcome is Outcome.COMPLETED
    assert record.usage == TokenUsage(input_tokens=100, cached_tokens=80, output_tokens=7)
    assert (record.transport, record.attempts, record.status) == (transport, 1, 200)
    assert record.model == "gpt-5.5"


@pytest.mark.parametrize(
    ("last", "outcome"),
    [(failed(), Outcome.FAILED), (incomplete(), Outcome.INCOMPLETE), (ERROR, Outcome.FAILED)],
    ids=["failed", "incomplete", "error"],
)
async def test_a_turn_that_ends_badly_upstream_ends_with_that_event(
    transport: Transport, last: bytes, outcome: Outcome, bench: Bench
) -> None:
    bench.upstream.will(streaming(created(), last, delta("nothing follows the end")))

    client = await bench.turn(transport)
    await client.wait_until(lambda: len(client.events) == 2)
    await ended(bench, client)

    assert bench.outcomes == [outcome]
    assert client.types[1].encode() in last
    assert len(client.events) == 2
    if transport is Transport.HTTP:
        assert client.complete
        assert client.body == created() + last
    elif last is ERROR:  # Codex ignores an error frame without a status
        assert (client.refused.status, client.refused.retry_after) == (502, "2")
        assert client.refused.message == "the model tripped"


@pytest.mark.parametrize(
    ("script", "status", "over_http", "on_a_websocket"),
    [
        (rejecting(429, BUSY, (b"retry-after", b"3")), 429, "3", "3"),
        (rejecting(429, BUSY, (b"retry-after-ms", b"1200")), 429, "2", "2"),
        (rejecting(429, BUSY), 429, None, None),
        (rejecting(400, BUSY), 400, None, None),
        (rejecting(503, BUSY, (b"retry-after", b"0")), 503, "1", "1"),
        (rejecting(500, BUSY), 500, None, "2"),
    ],
    ids=["429 in 3 s", "429 in 1200 ms", "429", "400", "503 at once", "500"],
)
async def test_a_refusal_of_the_upstream_keeps_its_status_code_and_words(
    transport: Transport,
    script: Script,
    status: int,
    over_http: str | None,
    on_a_websocket: str | None,
    bench: Bench,
) -> None:
    bench.upstream.will(script)

    client = await bench.turn(transport)
    refused = (await client.wait_answered()).refused
    await ended(bench, client)

    (record,) = bench.records
    advice = over_http if transport is Transport.HTTP else on_a_websocket
    assert (refused.status, refused.retry_after) == (status, advice)
    assert (refused.code, refused.message) == ("rate_limit_exceeded", "slow down")
    assert refused.reason is None
    assert (record.outcome, record.status) == (Outcome.UPSTREAM_REFUSED, status)
    assert record.attempts == 1


async def test_an_upstream_that_cannot_be_reached_is_said_to_be_so(
    transport: Transport, bench: Bench
) -> None:
    bench.upstream.will(failing(), failing())

    client = await bench.turn(transport)
    refused = (await client.wait_answered()).refused
    await ended(bench, client)

    assert (refused.status, refused.code) == (502, "upstream_unreachable")
    assert (refused.retry_after, refused.reason) == ("2", None)
    assert bench.outcomes == [Outcome.UPSTREAM_FAILED]


@pytest.mark.parametrize("mid_stream", [False, True], ids=["before the head", "in mid-stream"])
async def test_a_bug_is_logged_and_told_as_a_500(
    transport: Transport, mid_stream: bool, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bug = ValueError("a bug of ours")
    bench.upstream.will(streaming(created(), bug) if mid_stream else Script(before=[bug]))

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


async def test_a_bug_after_the_terminal_event_is_logged_and_changes_nothing(
    transport: Transport, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.upstream.will(streaming(created(), completed(), ValueError("a bug in closing")))

    client = await bench.turn(transport, until="response.completed")
    await ended(bench, client)

    assert bench.outcomes == [Outcome.COMPLETED]
    assert "a bug in closing" in caplog.text


@pytest.mark.parametrize(
    "rest", [[UpstreamCut("reset by peer")], []], ids=["reset", "an early end"]
)
async def test_a_cut_stream_is_visibly_cut(
    transport: Transport, rest: list[Step], bench: Bench
) -> None:
    bench.upstream.will(streaming(created(), delta(), *rest))

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


@pytest.mark.parametrize(
    "script",
    [Script(before=[trio.Event()]), streaming(trio.Event()), streaming(b": hi\n\n", trio.Event())],
    ids=["no head", "no event", "only a comment"],
)
async def test_an_upstream_without_a_first_event_is_given_up_after_120_seconds(
    transport: Transport, script: Script, bench: Bench
) -> None:
    bench.upstream.will(script)

    client = await bench.turn(transport)
    refused = (await client.wait_answered()).refused
    seconds = trio.current_time()
    await ended(bench, client)

    assert seconds == pytest.approx(120)
    assert (refused.status, refused.code) == (504, "upstream_timeout")
    assert refused.retry_after == "2"
    assert bench.outcomes == [Outcome.UPSTREAM_FAILED]
    assert len(bench.upstream.sent) == 1


async def test_an_upstream_that_falls_silent_is_cut_after_300_seconds(
    transport: Transport, bench: Bench
) -> None:
    bench.upstream.will(streaming(created(), 200.0, delta(), trio.Event()))

    client = await bench.turn(transport)
    await client.wait_answered()
    seconds = trio.current_time()
    await ended(bench, client)

    assert seconds == pytest.approx(500)
    assert bench.outcomes == [Outcome.CUT]
    assert not client.complete
    assert transport is Transport.HTTP or client.refused.status == 502
