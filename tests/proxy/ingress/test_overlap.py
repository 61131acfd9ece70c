"""Two turns of one lane on two connections: what their clients see of the rules of lifecycle."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits, Overlap
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, create, created, delta, post
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import JSON, Script, answer, streaming

REPLACE = Limits(overlap=Overlap.REPLACE)


async def test_an_interrupt_by_hanging_up_lets_the_next_turn_in_at_once(
    transport: Transport, bench: Bench
) -> None:
    """What Codex does on every interrupt: it drops the connection and opens another."""
    bench.upstream.will(streaming(created("resp_1"), trio.Event()), answer("resp_2"))

    holder = await bench.turn(transport, until="response.created")
    second = await bench.turn(transport)
    await wait_all_tasks_blocked()
    await holder.hang_up()
    await second.wait_for("response.completed")

    assert bench.outcomes == [Outcome.CLIENT_GONE, Outcome.COMPLETED]
    assert bench.runtime.admission.statistics().turns.refused == 0
    assert bench.log.index("admitted 2") == bench.log.index("released 1") + 1
    assert trio.current_time() < 0.1


async def test_a_second_turn_is_refused_after_the_settling_time_and_a_third_at_once(
    transport: Transport, bench: Bench
) -> None:
    bench.upstream.will(streaming(created("resp_1"), 5.0, completed("resp_1")))

    holder = await bench.post().wait_for("response.created")
    second = await bench.turn(transport)
    await wait_all_tasks_blocked()
    third = await bench.turn(transport)
    await third.wait_answered()
    third_at = trio.current_time()
    await second.wait_answered()
    second_at = trio.current_time()
    await holder.wait_for("response.completed")

    for client in (second, third):
        assert (client.refused.status, client.refused.reason) == (503, "lane_busy")
        assert (client.refused.code, client.refused.retry_after) == ("server_busy", "2")
    assert third_at == 0
    assert second_at == pytest.approx(1)
    assert bench.outcomes == [Outcome.REFUSED, Outcome.REFUSED, Outcome.COMPLETED]
    assert len(bench.upstream.sent) == 1


async def test_a_client_that_leaves_while_it_waits_frees_its_place(
    transport: Transport, bench: Bench
) -> None:
    first = streaming(created("resp_1"), 0.9, completed("resp_1"))
    bench.upstream.will(first, answer("resp_3"))

    await bench.post().wait_for("response.created")
    second = await bench.turn(transport)
    await wait_all_tasks_blocked()
    await second.hang_up()
    await second.wait_returned()
    third = await bench.post().wait_returned()

    assert third.complete
    assert bench.outcomes == [Outcome.CLIENT_GONE, Outcome.COMPLETED, Outcome.COMPLETED]
    assert len(bench.upstream.sent) == 2


@pytest.mark.parametrize(
    ("event", "seconds", "gone"),
    [(True, 8.0, False), (True, 11.0, True), (False, 31.0, True)],
    ids=["8 s", "11 s", "a filler at 20 s, for 11 s"],
)
async def test_a_holder_whose_client_has_not_read_for_ten_seconds_is_replaced(
    transport: Transport, event: bool, seconds: float, gone: bool, bench: Bench
) -> None:
    go = trio.Event()
    bench.upstream.will(streaming(created("resp_1"), go, delta(), trio.Event()), answer())

    holder = await bench.turn(transport, until="response.created")
    holder.stop_reading()
    if event:
        go.set()
    await trio.sleep(seconds)
    second = await bench.post().wait_returned()

    assert second.complete
    assert second.status == (200 if gone else 503)
    assert bench.outcomes[0] is (Outcome.DISPLACED if gone else Outcome.REFUSED)


async def test_a_holder_whose_client_reads_keeps_its_lane_however_slow_the_upstream(
    bench: Bench,
) -> None:
    bench.upstream.will(streaming(created("resp_1"), 100.0, completed("resp_1")))

    holder = await bench.post().wait_for("response.created")
    await trio.sleep(65)
    second = await bench.post().wait_returned()
    await holder.wait_for("response.completed")

    assert second.refused.reason == "lane_busy"


async def test_siblings_of_one_fan_out_and_strangers_do_not_wait_for_each_other(
    bench: Bench,
) -> None:
    """Field cases B01, B02 and B10."""
    named: list[tuple[str | None, str | None, str | None]] = [
        *(("child 1", "s", "p"), ("child 2", "s", "p"), ("child 3", "s", "p")),
        *(("p", "s", None), ("p", "another", None)),
        *((None, "s", None), (None, "s", None), ("t", None, None), ("t", None, None)),
    ]
    bench.upstream.will(*(streaming(created(), trio.Event()) for _ in named))

    large = post(input="x" * 400_000)
    clients = [bench.post(large, thread=t, session=s, parent=p) for t, s, p in named]
    await wait_all_tasks_blocked()

    assert (bench.turns, bench.lanes) == (len(named), 5)
    assert [client.types for client in clients] == [["response.created"]] * len(named)


# What a displaced client is told.


async def test_a_turn_displaced_by_another_connection_is_told_so(
    transport: Transport, open_bench: OpenBench
) -> None:
    bench = open_bench(streaming(created(), trio.Event()), answer("resp_2"), limits=REPLACE)

    first = await bench.turn(transport, until="response.created")
    second = await bench.post().wait_returned()
    await wait_all_tasks_blocked()

    assert second.types[-1] == "response.completed"
    assert bench.outcomes == [Outcome.DISPLACED, Outcome.COMPLETED]
    if transport is Transport.HTTP:
        error = first.events[-1]["response"]["error"]
        assert first.types == ["response.created", "response.failed"]
        assert "continued on another connection" in error["message"]
        assert first.complete
    else:
        assert first.refused.reason == "displaced"
        assert (first.refused.status, first.refused.code) == (409, "continued_elsewhere")
        assert not first.returned


async def test_a_displaced_turn_of_codex_is_told_in_the_form_that_codex_shows(
    open_bench: OpenBench,
) -> None:
    """Only its frame says that it is Codex."""
    bench = open_bench(streaming(created(), trio.Event()), answer(), limits=REPLACE)

    socket = bench.socket()
    await socket.say_until("response.created", create(metadata={"x-codex-window-id": "thread:0"}))
    second = bench.post()
    await socket.wait_for("error")
    await second.wait_returned()

    assert (socket.refused.status, socket.refused.code) == (400, "invalid_prompt")
    assert socket.refused.reason == "displaced"


async def test_a_turn_displaced_before_its_answer_began_is_refused_with_a_status(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(Script(before=[trio.Event()]), answer(), limits=REPLACE)

    first = bench.post()
    await wait_all_tasks_blocked()
    await bench.post().wait_returned()
    await first.wait_returned()

    assert (first.refused.status, first.refused.reason) == (409, "displaced")
    assert bench.outcomes == [Outcome.DISPLACED, Outcome.COMPLETED]


async def test_a_displaced_answer_that_is_not_a_stream_is_visibly_cut(
    open_bench: OpenBench,
) -> None:
    whole = Script([b'{"id":', trio.Event()], headers=JSON)
    bench = open_bench(whole, answer(), limits=REPLACE)

    first = bench.post(post(stream=False))
    await wait_all_tasks_blocked()
    await bench.post().wait_returned()
    await first.wait_returned()

    assert (first.status, first.body, first.complete) == (200, b'{"id":', False)
