"""A WebSocket's handshake and its end: limits, denials, and the drain."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits
from proxy.journal.record import Transport
from tests.testkit.events import completed, create, created
from tests.testkit.runtime import Bench
from tests.testkit.upstream import Script, answer, streaming


async def test_at_the_limit_of_websockets_a_handshake_is_answered_over_http(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer(), limits=Limits(websockets=1))

    first = bench.socket()
    await first.wait_until(lambda: first.accepted)
    second = bench.socket()
    await second.wait_returned()
    await first.hang_up()
    await first.wait_returned()
    third = await bench.turn(Transport.WEBSOCKET)
    await third.wait_for("response.completed")

    assert not second.accepted
    assert (second.refused.status, second.refused.reason) == (503, "websockets_at_capacity")
    assert second.refused.retry_after == "2"
    assert second.headers["connection"] == "close"
    assert bench.records[0].transport is Transport.WEBSOCKET


async def test_a_draining_proxy_denies_handshakes_and_says_for_how_long(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    bench.runtime.admission.close_door(10)
    await trio.sleep(3.5)
    socket = bench.socket()
    await socket.wait_returned()

    assert (socket.refused.status, socket.refused.reason) == (503, "draining")
    assert socket.refused.retry_after == "9"


async def test_a_drain_closes_an_idle_socket_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer())

    fresh = bench.socket()
    used = await bench.turn(Transport.WEBSOCKET)
    await used.wait_for("response.completed")
    await wait_all_tasks_blocked()
    bench.runtime.admission.close_door(10)
    await fresh.wait_returned()
    await used.wait_returned()

    assert (fresh.closed_with, used.closed_with) == (1001, 1001)
    assert trio.current_time() < 0.1
    assert bench.at_rest


async def test_a_drain_closes_a_busy_socket_after_its_turn_and_refuses_another(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), 4.0, completed()))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    bench.runtime.admission.close_door(10)
    await socket.say(create())
    await socket.wait_returned()

    assert socket.types == ["response.created", "error", "response.completed"]
    assert socket.refused.reason == "draining"
    assert socket.refused.retry_after == "12"
    assert socket.closed_with == 1001
    assert bench.at_rest


async def test_a_drain_waits_for_the_successor_of_a_turn_too(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closing = trio.Event()
    first = Script([created("resp_1"), trio.Event()], closing=closing)
    bench = Bench(nursery, first, streaming(created("resp_2"), 2.0, completed("resp_2")))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    await socket.say(create())
    await wait_all_tasks_blocked()
    bench.runtime.admission.close_door(10)
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_returned()

    assert socket.types[-1] == "response.completed"
    assert socket.closed_with == 1001


async def test_what_is_said_while_the_last_turn_drains_is_answered_before_the_close(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created("resp_1"), trio.Event()))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    bench.runtime.admission.close_door(10)
    await wait_all_tasks_blocked()
    await socket.say(create(generate=False))
    await socket.wait_returned()

    assert socket.types[-1] == "response.completed"
    assert socket.closed_with == 1001
