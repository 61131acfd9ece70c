"""A turn, as its clients and its records show it: attempts, deadlines, what is recorded."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proxy.config.settings import UpstreamSettings
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from proxy.upstream.interface import Failure
from tests.testkit.events import completed, created, delta, post
from tests.testkit.runtime import WALL, Bench, OpenBench
from tests.testkit.upstream import Script, Step, answer, failing, rejecting, streaming

HOPELESS = Failure(status=502, code="upstream_unusable", message="no such scheme", retriable=False)


@pytest.mark.parametrize("second", ["answers", "fails too"])
@pytest.mark.parametrize(
    "early",
    [
        failing(),
        streaming(),
        streaming(b": only a comment\n\n", UpstreamCut("reset")),
        streaming(b"data: half an event", UpstreamCut("reset")),
        Script(before=[UpstreamCut("reset")]),
    ],
    ids=["no reply", "empty", "comment", "half an event", "reset before the head"],
)
async def test_what_fails_before_its_first_event_is_tried_again_once(
    transport: Transport, early: Script, second: str, bench: Bench
) -> None:
    bench.upstream.will(early, answer() if second == "answers" else early, answer())

    client = await bench.turn(transport)
    last = "response.completed" if second == "answers" else "error"
    await client.wait_until(lambda: client.complete or last in client.types)

    one, other = bench.upstream.sent
    assert (one.closed, one.body, bench.records[0].attempts) == (True, other.body, 2)
    if second == "answers":
        assert bench.outcomes == [Outcome.COMPLETED]
        assert client.types[0] == "response.created"
    else:
        assert bench.outcomes == [Outcome.UPSTREAM_FAILED]
        assert (client.refused.status, client.refused.retry_after) == (502, "2")


async def test_after_its_first_event_nothing_is_sent_again(
    transport: Transport, bench: Bench
) -> None:
    bench.upstream.will(streaming(created(), UpstreamCut("reset")), answer())

    await bench.turn(transport)
    await wait_all_tasks_blocked()

    assert len(bench.upstream.sent) == 1
    assert bench.outcomes == [Outcome.CUT]


@pytest.mark.parametrize(
    "first",
    [
        failing(HOPELESS),
        rejecting(429, b"{}"),
        rejecting(500, b"{}"),
        Script([b'{"err', UpstreamCut("reset")], status=503),
        Script([b'{"err', trio.Event()], status=503),
    ],
    ids=["hopeless", "429", "500", "503 cut", "503 without end"],
)
async def test_a_clear_no_is_not_tried_again(
    transport: Transport, first: Script, bench: Bench
) -> None:
    bench.upstream.will(first, answer())

    client = await (await bench.turn(transport)).wait_answered()

    assert len(bench.upstream.sent) == 1
    assert bench.records[0].attempts == 1
    assert client.complete or client.types == ["error"]


@pytest.mark.parametrize(
    ("rest", "seconds"), [(UpstreamCut("reset"), 0), (trio.Event(), 10)], ids=["cut", "no end"]
)
async def test_a_refusal_keeps_its_status_though_its_words_do_not_all_come(
    transport: Transport, rest: Step, seconds: float, bench: Bench
) -> None:
    bench.upstream.will(Script([b"slow ", rest], status=429, headers=((b"retry-after", b"7"),)))

    client = await (await bench.turn(transport)).wait_answered()

    assert bench.outcomes == [Outcome.UPSTREAM_REFUSED]
    assert trio.current_time() == seconds
    if transport is Transport.HTTP:
        assert (client.status, client.body, client.headers["retry-after"]) == (429, b"slow ", "7")
        assert client.complete
    else:
        assert (client.refused.status, client.refused.retry_after) == (429, "7")


@pytest.mark.parametrize("sends", [1, 2, 4])
async def test_the_number_of_sends_is_a_setting(sends: int, open_bench: OpenBench) -> None:
    bench = open_bench(*[failing()] * 5, upstream=UpstreamSettings(sends=sends))

    await bench.post().wait_returned()

    assert len(bench.upstream.sent) == sends


async def test_a_client_that_leaves_during_the_second_attempt_ends_it(bench: Bench) -> None:
    bench.upstream.will(failing(), streaming(trio.Event()))

    client = bench.post()
    await trio.sleep(1)
    await client.hang_up()
    await client.wait_returned()

    assert bench.at_rest
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert bench.records[0].attempts == 2


@pytest.mark.parametrize("life", [delta(), b": beat\n\n"], ids=["an event", "a comment"])
async def test_once_a_stream_has_begun_every_byte_buys_the_next_its_own_silence(
    life: bytes, bench: Bench
) -> None:
    beats: list[Step] = [290.0, life]
    bench.upstream.will(streaming(created(), *beats * 5, completed()))

    await bench.post().wait_returned()

    assert bench.outcomes == [Outcome.COMPLETED]
    assert trio.current_time() == pytest.approx(5 * 290)


async def test_before_the_first_event_no_comment_buys_time(bench: Bench) -> None:
    """Field case B70."""
    beats: list[Step] = [10.0, b": beat\n\n"]
    bench.upstream.will(streaming(*beats * 50, created()))

    client = await bench.post().wait_returned()

    assert client.refused.status == 504
    assert trio.current_time() == pytest.approx(120)


async def test_a_turn_whose_time_runs_out_after_its_end_has_ended(open_bench: OpenBench) -> None:
    bench = open_bench(
        streaming(created(), completed(), trio.Event()),
        upstream=UpstreamSettings(silence_seconds=0.001),
    )

    client = await bench.post().wait_returned()

    assert client.types[-1] == "response.completed"
    assert bench.outcomes == [Outcome.COMPLETED]


async def test_a_record_says_who_when_how_long_and_how_much(bench: Bench) -> None:
    events = (created(), delta(), completed())
    bench.upstream.will(Script([events[0], 3.0, *events[1:]], before=[2.0]))

    await bench.post(parent="parent", session="parent", thread="child").wait_returned()

    (record,) = bench.records
    assert (record.wall, record.principal, record.transport) == (WALL, "local", "http")
    assert (record.first_event_ms, record.total_ms) == (2000, 5000)
    assert (record.worker, record.lane is None, record.root is None) == (True, False, False)
    assert (record.bytes_up, record.bytes_down) == (len(post()), sum(map(len, events)))


async def test_a_record_of_a_turn_without_an_event_has_no_time_of_one(bench: Bench) -> None:
    bench.upstream.will(failing(), failing())

    await bench.post(thread=None, session=None).wait_returned()

    (record,) = bench.records
    assert (record.first_event_ms, record.status, record.lane) == (None, None, None)
