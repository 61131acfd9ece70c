"""A turn, as its clients and its records show it: attempts, deadlines, what is recorded."""

import pytest
import trio
from trio.testing import MockClock

from proxy.config.settings import UpstreamSettings
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from proxy.upstream.interface import Failure
from tests.testkit.events import completed, created, delta, post
from tests.testkit.runtime import TRANSPORTS, WALL, Bench
from tests.testkit.upstream import Script, answer, failing, rejecting, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)
HOPELESS = Failure(status=502, code="upstream_unusable", message="no such scheme", retriable=False)
EARLY_ENDS = [
    failing(),
    streaming(),
    streaming(UpstreamCut("reset")),
    streaming(b": only a comment\n\n", UpstreamCut("reset")),
    streaming(b"data: half an event", UpstreamCut("reset")),
    Script(before=[UpstreamCut("reset")]),
]
NAMES = ["no reply", "empty", "reset", "comment", "half an event", "reset before the head"]


@both
@pytest.mark.parametrize("first", EARLY_ENDS, ids=NAMES)
async def test_what_fails_before_its_first_event_is_tried_again_once(
    transport: Transport, first: Script, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, first, answer())

    client = await bench.turn(transport)
    await client.wait_for("response.completed")

    first_sent, second_sent = bench.upstream.sent
    assert client.types == ["response.created", "response.output_text.delta", "response.completed"]
    assert first_sent.closed
    assert first_sent.body == second_sent.body
    assert (bench.outcomes, bench.records[0].attempts) == ([Outcome.COMPLETED], 2)


@both
@pytest.mark.parametrize("early", EARLY_ENDS, ids=NAMES)
async def test_what_fails_twice_before_its_first_event_is_not_tried_again(
    transport: Transport, early: Script, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, early, early, answer())

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.complete or client.events)

    assert client.refused.status == 502
    assert client.refused.retry_after == "2"
    assert len(bench.upstream.sent) == 2
    assert (bench.outcomes, bench.records[0].attempts) == ([Outcome.UPSTREAM_FAILED], 2)


@both
@pytest.mark.parametrize(
    "first",
    [
        failing(HOPELESS),
        rejecting(429, b"{}"),
        rejecting(500, b"{}"),
        rejecting(503, b"{}"),
        Script([b'{"err', UpstreamCut("reset")], status=503),
        Script([b'{"err', trio.Event()], status=503),
    ],
    ids=["hopeless", "429", "500", "503", "503 cut", "503 without end"],
)
async def test_a_clear_no_is_not_tried_again(
    transport: Transport, first: Script, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, first, answer())

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.returned or client.events)

    assert len(bench.upstream.sent) == 1
    assert bench.records[0].attempts == 1
    assert client.complete or client.types == ["error"]


@both
@pytest.mark.parametrize("rest", [UpstreamCut("reset"), trio.Event()], ids=["cut", "no end"])
async def test_a_refusal_keeps_its_status_though_its_words_do_not_all_come(
    transport: Transport,
    rest: UpstreamCut | trio.Event,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    no = Script([b"slow ", rest], status=429, headers=((b"retry-after", b"7"),))
    bench = Bench(nursery, no)

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.returned or client.events)

    assert bench.outcomes == [Outcome.UPSTREAM_REFUSED]
    assert trio.current_time() == (0 if isinstance(rest, UpstreamCut) else 10)
    if transport is Transport.HTTP:
        assert (client.status, client.body, client.headers["retry-after"]) == (429, b"slow ", "7")
        assert client.complete
    else:
        assert (client.refused.status, client.refused.retry_after) == (429, "7")


@both
async def test_after_its_first_event_nothing_is_tried_again(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), UpstreamCut("reset")), answer())

    client = await bench.turn(transport)
    await client.wait_until(lambda: client.returned or "error" in client.types)

    assert len(bench.upstream.sent) == 1
    assert bench.outcomes == [Outcome.CUT]


@pytest.mark.parametrize("sends", [1, 2, 4])
async def test_the_number_of_sends_is_a_setting(
    sends: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts = [failing() for _ in range(5)]
    bench = Bench(nursery, *scripts, upstream=UpstreamSettings(sends=sends))

    client = bench.post()
    await client.wait_returned()

    assert len(bench.upstream.sent) == sends


async def test_a_client_that_leaves_during_the_second_attempt_ends_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, failing(), streaming(trio.Event()))

    client = bench.post()
    await trio.sleep(1)
    await client.hang_up()
    await client.wait_returned()

    assert bench.at_rest
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert bench.records[0].attempts == 2


async def test_every_event_buys_the_next_its_own_silence(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    steady = [step for _ in range(5) for step in (delta(), 290.0)]
    bench = Bench(nursery, streaming(created(), *steady, completed()))

    client = bench.post()
    await client.wait_returned()

    assert bench.outcomes == [Outcome.COMPLETED]
    assert trio.current_time() > 1400


async def test_comments_count_as_signs_of_life_once_the_stream_has_begun(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    beats = [step for _ in range(5) for step in (290.0, b": beat\n\n")]
    bench = Bench(nursery, streaming(created(), *beats, completed()))

    client = bench.post()
    await client.wait_returned()

    assert bench.outcomes == [Outcome.COMPLETED]


async def test_before_the_first_event_no_comment_buys_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B70."""
    beats = [step for _ in range(50) for step in (10.0, b": beat\n\n")]
    bench = Bench(nursery, streaming(*beats, created()))

    client = bench.post()
    await client.wait_returned()

    assert client.refused.status == 504
    assert trio.current_time() == pytest.approx(120)


async def test_a_turn_whose_time_runs_out_after_its_end_has_ended(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(
        nursery,
        streaming(created(), completed(), trio.Event()),
        upstream=UpstreamSettings(silence_seconds=0.001),
    )

    client = bench.post()
    await client.wait_returned()

    assert client.types[-1] == "response.completed"
    assert bench.outcomes == [Outcome.COMPLETED]


async def test_a_record_says_who_when_how_long_and_how_much(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    events = (created(), delta(), completed())
    bench = Bench(nursery, Script([events[0], 3.0, *events[1:]], before=[2.0]))

    client = bench.post(parent="parent", session="parent", thread="child")
    await client.wait_returned()

    (record,) = bench.records
    assert (record.wall, record.principal, record.transport) == (WALL, "local", "http")
    assert (record.first_event_ms, record.total_ms) == (2000, 5000)
    assert record.worker
    assert record.lane is not None
    assert record.root is not None
    assert (record.bytes_up, record.bytes_down) == (len(post()), sum(map(len, events)))


async def test_a_record_of_a_turn_without_an_event_has_no_time_of_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, failing(), failing())

    client = bench.post(thread=None, session=None)
    await client.wait_returned()

    (record,) = bench.records
    assert (record.first_event_ms, record.status, record.lane) == (None, None, None)
