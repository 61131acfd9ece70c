"""The promise: on every ending, a task in the turn's nursery is gone before the lease is back."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Lease, Limits, Overlap
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from tests.testkit.asgi import Client, SocketClient
from tests.testkit.events import completed, create, created, delta, failed, interrupt
from tests.testkit.runtime import TRANSPORTS, Bench, OpenBench
from tests.testkit.upstream import Script, Step, answer, failing, rejecting, streaming

LINGERS_SECONDS = 0.25
FOREVER_SECONDS = 10**6

Act = Callable[[Bench, Client, trio.Event], Awaitable[object]]


async def stray(bench: Bench, lease: Lease) -> None:
    """A task that goes on forever, and takes its time when it is cancelled."""
    try:
        await trio.sleep(FOREVER_SECONDS)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(LINGERS_SECONDS)
        bench.log.append(f"gone {lease.id}")


async def with_strays(bench: Bench, transport: Transport) -> Client:
    """Begin a turn and add two tasks to its nursery."""
    client = await bench.turn(transport)
    await wait_all_tasks_blocked()
    (lease,) = bench.runtime.admission.held
    for _ in range(2):
        lease.nursery.start_soon(stray, bench, lease)
    await wait_all_tasks_blocked()
    return client


def books(log: list[str]) -> list[str]:
    """The log of the first turn, without what its client saw."""
    return [line for line in log if line in ("admitted 1", "gone 1", "released 1")]


GONE_FIRST = ["admitted 1", "gone 1", "gone 1", "released 1"]


@pytest.mark.parametrize(
    ("rest", "outcome"),
    [
        ([completed()], Outcome.COMPLETED),
        ([failed()], Outcome.FAILED),
        ([UpstreamCut("reset")], Outcome.CUT),
        ([], Outcome.CUT),
        ([trio.Event()], Outcome.CUT),
        ([ValueError("a bug of ours")], Outcome.BROKEN),
        ([delta("x" * 600_000), completed()], Outcome.COMPLETED),
    ],
    ids=["completed", "failed", "cut", "early end", "silence", "bug", "larger than the outbox"],
)
async def test_strays_are_gone_before_the_lease_however_the_upstream_ends_a_turn(
    transport: Transport, rest: list[Step], outcome: Outcome, open_bench: OpenBench
) -> None:
    go = trio.Event()
    bench = open_bench(streaming(created(), go, *rest))

    await with_strays(bench, transport)
    go.set()
    await trio.sleep(1000)

    assert books(bench.log) == GONE_FIRST
    assert bench.outcomes == [outcome]


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (rejecting(429, b"{}"), Outcome.UPSTREAM_REFUSED),
        (failing(), Outcome.UPSTREAM_FAILED),
        (Script(before=[FOREVER_SECONDS]), Outcome.UPSTREAM_FAILED),
    ],
    ids=["refused", "unreachable", "no answer"],
)
async def test_strays_are_gone_before_the_lease_however_the_upstream_refuses_it(
    transport: Transport, script: Script, outcome: Outcome, open_bench: OpenBench
) -> None:
    go = trio.Event()
    script = Script(
        script.body, script.status, script.headers, [go, *script.before], script.failure
    )
    bench = open_bench(script, failing())

    await with_strays(bench, transport)
    go.set()
    await trio.sleep(1000)

    assert books(bench.log) == GONE_FIRST
    assert bench.outcomes == [outcome]


async def hang_up(_: Bench, client: Client, __: trio.Event) -> None:
    await client.hang_up()


async def displace(bench: Bench, _: Client, __: trio.Event) -> None:
    await bench.post().wait_returned()


async def stall(_: Bench, client: Client, go: trio.Event) -> None:
    client.stop_reading()
    go.set()  # more comes than an outbox holds
    await trio.sleep(60)
    client.read_on()


async def replace(_: Bench, client: Client, __: trio.Event) -> None:
    assert isinstance(client, SocketClient)
    await client.say(create())


async def interrupt_it(_: Bench, client: Client, __: trio.Event) -> None:
    assert isinstance(client, SocketClient)
    await client.say(interrupt())


async def shut_down(bench: Bench, _: Client, __: trio.Event) -> None:
    bench.runtime.admission.close_door(10)
    await trio.sleep(10)
    bench.nursery.cancel_scope.cancel()


async def cancel_from_outside(bench: Bench, _: Client, __: trio.Event) -> None:
    bench.nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("transport", "act", "outcome"),
    [
        *[(each, hang_up, Outcome.CLIENT_GONE) for each in TRANSPORTS],
        *[(each, displace, Outcome.DISPLACED) for each in TRANSPORTS],
        *[(each, stall, Outcome.CLIENT_STALLED) for each in TRANSPORTS],
        *[(each, shut_down, Outcome.SHUTDOWN) for each in TRANSPORTS],
        *[(each, cancel_from_outside, Outcome.CLIENT_GONE) for each in TRANSPORTS],
        (Transport.WEBSOCKET, replace, Outcome.REPLACED),
        (Transport.WEBSOCKET, interrupt_it, Outcome.INTERRUPTED),
    ],
)
async def test_strays_are_gone_before_the_lease_however_a_turn_is_cancelled(
    transport: Transport, act: Act, outcome: Outcome, open_bench: OpenBench
) -> None:
    go = trio.Event()
    big = delta("x" * 300_000)
    limits = Limits(overlap=Overlap.REPLACE)
    async with trio.open_nursery() as service:
        first = streaming(created(), go, big, big, big)
        bench = OpenBench(service)(first, answer("resp_2"), limits=limits)
        client = await with_strays(bench, transport)

        await act(bench, client, go)
        await trio.sleep(2 * LINGERS_SECONDS)
        service.cancel_scope.cancel()

    assert books(bench.log) == GONE_FIRST
    assert bench.outcomes[0] is outcome
    assert bench.at_rest


async def test_strays_are_gone_before_the_lease_of_a_turn_refused_after_admission(
    open_bench: OpenBench,
) -> None:
    bench = open_bench()

    client = bench.request("POST", "/v1/responses", headers=[("content-length", "1000")])
    await wait_all_tasks_blocked()
    (lease,) = bench.runtime.admission.held
    for _ in range(2):
        lease.nursery.start_soon(stray, bench, lease)
    await client.wait_returned()

    assert books(bench.log) == GONE_FIRST
    assert (bench.outcomes, client.status) == ([Outcome.REFUSED], 408)
