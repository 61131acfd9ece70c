"""Many turns on one WebSocket: increments on the byte after the end, and replacements at random."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from harness.wire.upstream import Received, ScriptedUpstream, sse
from harness.wire.websocket import TEXT, WebSocket, frame
from tests.e2e.process import open_child
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import create

SECONDS = 28
SENDS = 20_000
MANY: Final = 10_000
LATER: Final = pytest.mark.load


@asynccontextmanager
async def _started(upstream: ScriptedUpstream, path: Path, *, alone: bool) -> AsyncIterator[Proxy]:
    """In this process, or in one of its own, which runs truly at the same time.

    One conversation sends here in seconds what its budget allows in hours, so that is raised.
    """
    if alone:
        file = trio.Path(path / "turnlane.toml")
        await file.write_text(f"[workflow]\nsends = {SENDS}\n")
        async with open_child(path / "home", upstream.url, "--config", str(file)) as child:
            yield child.proxy
    else:
        async with open_proxy(upstream.url, workflow={"sends": SENDS}) as proxy:
            yield proxy


async def _in_one_write(sent: Received) -> None:
    """The whole answer at once, its last event and the end of the body included."""
    await sent.begin()
    item = {"type": "message", "id": f"msg_{sent.number}"}
    events = (
        {"type": "response.created", "response": {"id": sent.id}},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": sent.id}},
    )
    await sent.end(b"".join(sse(event) for event in events))


@pytest.mark.parametrize(
    ("count", "sockets", "alone"),
    [
        (100, 1, False),
        pytest.param(MANY, 4, True, marks=LATER),
    ],
)
async def test_an_increment_on_the_byte_after_the_end_is_served_every_time(
    upstream: ScriptedUpstream, tmp_path: Path, count: int, sockets: int, alone: bool
) -> None:
    upstream.script = _in_one_write
    upstream.remember = alone is False
    with trio.fail_after(SECONDS * (20 if alone else 1)):
        async with _started(upstream, tmp_path, alone=alone) as proxy:
            async with trio.open_nursery() as nursery:
                for number in range(sockets):
                    socket = await proxy.websocket()
                    nursery.start_soon(_increments, socket, f"t{number}", count // sockets)
            status = await proxy.until(lambda status: status["turns"]["active"] == 0)

    assert status["outcomes"] == {"completed": count}
    assert status["refusals"] == {}
    assert upstream.count == count


async def _increments(socket: WebSocket, thread: str, count: int) -> None:
    previous = None
    for _ in range(count):
        await socket.send(create(thread, previous=previous, input=[]))
        while (event := await socket.event())["type"] != "response.completed":
            assert event["type"] in ("response.created", "response.output_item.done"), event
        previous = event["response"]["id"]


async def _echo(sent: Received) -> None:
    """A short stream, piece by piece; every event says which round it belongs to."""
    round_ = sent.json["metadata"]["round"]
    response = {"id": sent.id, "round": round_}
    await sent.begin()
    await sent.event("response.created", response=response)
    for _ in range(3):
        await trio.lowlevel.checkpoint()
        await sent.event("response.output_text.delta", response=response)
    await sent.write(sse({"type": "response.completed", "response": response}))
    await sent.end(b"")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("rounds", "alone"), [(60, False), pytest.param(1_000, True, marks=LATER)])
async def test_replacements_at_random_moments_lose_and_cross_nothing(
    upstream: ScriptedUpstream, tmp_path: Path, seed: int, rounds: int, alone: bool
) -> None:
    upstream.script = _echo
    seen: list[tuple[int, str]] = []
    with trio.fail_after(SECONDS * (10 if alone else 1)):
        async with _started(upstream, tmp_path, alone=alone) as proxy:
            socket = await proxy.websocket()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_read, socket, rounds - 1, seen)
                await _replace(socket, random.Random(seed), rounds)
            status = await proxy.until(lambda status: status["turns"]["active"] == 0)

    assert [number for number, _ in seen] == sorted(number for number, _ in seen)
    assert seen[-1] == (rounds - 1, "response.completed")
    completed = [number for number, kind in seen if kind == "response.completed"]
    assert len(completed) == len(set(completed)) <= status["outcomes"]["completed"]
    assert sum(status["outcomes"].values()) <= rounds
    assert set(status["outcomes"]) <= {"completed", "replaced"}
    assert status["refusals"] == {}
    assert upstream.count <= rounds


async def _replace(socket: WebSocket, dice: random.Random, rounds: int) -> None:
    for number in range(rounds):
        await socket.raw(frame(TEXT, json.dumps(_round(number)).encode()))
        if dice.random() < 0.8:
            await trio.sleep(dice.random() * 0.012)


def _round(number: int) -> dict[str, Any]:
    return create("t", metadata={"round": number})


async def _read(socket: WebSocket, last: int, seen: list[tuple[int, str]]) -> None:
    while not seen or seen[-1] != (last, "response.completed"):
        event = await socket.event()
        assert event["type"] != "error", event
        seen.append((event["response"]["round"], event["type"]))
