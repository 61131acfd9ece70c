"""Random acts of many clients on both transports, by seed: whatever they do, nothing stays held."""

import logging
from random import Random

import pytest
import trio

from lifecycle import Limits, Overlap
from proxy.errors import UpstreamCut
from tests.testkit.asgi import SocketClient
from tests.testkit.events import (
    call,
    completed,
    create,
    created,
    delta,
    failed,
    incomplete,
    interrupt,
    item_done,
    message,
    post,
)
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import Script, Step, failing, rejecting

SEEDS = 8
THREADS = 4
TERMINAL = ("response.completed", "response.failed", "response.incomplete")
PAUSES = (0.0, 0.0, 0.0, 0.001, 0.01, 0.5, 3.0, 40.0)


def some_script(random: Random, name: str) -> Script:
    if random.random() < 0.1:
        return failing()
    if random.random() < 0.1:
        return rejecting(random.choice([400, 429, 503]), b'{"error":{"message":"no"}}')
    steps: list[Step] = [created(name)]
    for number in range(random.randrange(6)):
        some: list[Step] = [
            delta(name),
            delta(name + ":" + "x" * random.choice([10, 10, 10, 100_000, 300_000])),
            item_done(call(f"call_{name}_{number}")),
            b": beat\n\n",
            random.choice([0.0, 0.01, 1.0, 30.0]),
        ]
        steps += random.choices(some)
    ends: list[Step] = [*[completed(name)] * 5, failed(name), incomplete(name), UpstreamCut("cut")]
    steps += random.choices([*ends, b""])
    if random.random() < 0.3:
        steps.append(random.choice([0.001, 0.02, 10.0]))
    return Script(steps, before=[random.choice([0.1, 2.0, 50.0])] if random.random() < 0.3 else [])


async def say(socket: SocketClient, frame: str) -> None:
    """Say it, or give up: the app may stop reading from a client that does not read."""
    with trio.move_on_after(1):
        await socket.say(frame)


def some_create(socket: SocketClient, random: Random) -> str:
    ended = [e["response"]["id"] for e in socket.events if e.get("type") in TERMINAL]
    return create(
        message("x" * random.choice([1, 1000, 20_000])),
        previous=ended[-1] if ended and random.random() < 0.6 else None,
        thread=f"thread {random.randrange(THREADS)}",
        generate=random.random() < 0.9,
    )


async def act_on_a_socket(socket: SocketClient, random: Random) -> None:
    for _ in range(random.randrange(3, 25)):
        match random.choice(["create"] * 5 + ["interrupt", "junk", "stop", "read", "meter"]):
            case "create":
                await say(socket, some_create(socket, random))
            case "interrupt":
                await say(socket, interrupt())
            case "junk":
                await say(socket, "junk")
            case "stop":
                socket.stop_reading()
            case "read":
                socket.read_on()
            case _ if socket.told is not None:
                socket.told(random.choice([0, 1000, 50_000, 500_000]))
        await trio.sleep(random.choice(PAUSES))
    if random.random() < 0.2:
        await socket.hang_up()
    socket.read_on()


async def act_over_http(bench: Bench, random: Random) -> None:
    for _ in range(random.randrange(1, 6)):
        body = post(stream=random.random() < 0.8, input="x" * random.choice([1, 30_000]))
        client = bench.post(body, thread=f"thread {random.randrange(THREADS)}")
        if random.random() < 0.3:
            client.stop_reading()
        await trio.sleep(random.choice(PAUSES))
        client.read_on()
        if random.random() < 0.3:
            await client.hang_up()


def some_limits(random: Random) -> Limits:
    return Limits(
        turns=random.choice([2, 4, 50]),
        lanes=random.choice([2, 4, 64]),
        lanes_kept=1,
        memory_bytes=random.choice([60_000, 300_000, 10**7]),
        overlap=random.choice(list(Overlap)),
        settle_seconds=random.choice([0.0, 1.0]),
    )


def responses_in_order(socket: SocketClient) -> bool:
    """Whether no event of a response comes after its end, or after another response has begun."""
    past: set[str] = set()
    now = ""
    for event in socket.events:
        kind = event.get("type", "")
        if "delta" in event:
            name = event["delta"].partition(":")[0]
        elif "response" in event:
            name = event["response"]["id"]
        else:
            continue
        if name in past:
            return False
        if name != now:
            past.add(now)
            now = name
        if kind in TERMINAL:
            past.add(name)
    return True


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_clients_do_nothing_is_held_afterwards(
    seed: int, open_bench: OpenBench, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    limits = some_limits(random)
    bench = open_bench(*(some_script(random, f"resp_{i}") for i in range(300)), limits=limits)
    sockets = [bench.socket() for _ in range(random.randrange(1, 6))]

    async with trio.open_nursery() as acts:
        for socket in sockets:
            acts.start_soon(act_on_a_socket, socket, random)
        for _ in range(random.randrange(4)):
            acts.start_soon(act_over_http, bench, random)
    await trio.sleep(1000)
    ended = (bench.turns, bench.lanes, bench.upstream.running)
    for socket in sockets:
        await socket.hang_up()
        await socket.wait_returned()

    books = bench.runtime.admission.statistics()
    assert ended == (0, 0, 0)
    assert bench.at_rest
    assert books.turns.peak <= limits.turns
    assert books.lanes.peak <= limits.lanes
    assert all(responses_in_order(socket) for socket in sockets)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
