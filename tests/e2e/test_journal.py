"""The journal outlives a process that is killed in the middle of everything."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from harness.wire.upstream import ScriptedUpstream
from tests.e2e.process import Child, open_child, run
from tests.testkit.wire import create, named, post

SECONDS = 60
STREAMS = 64
TRAFFIC_SECONDS = 2.0
LOST_SECONDS = 1.0
SECRET = "sk-a-very-secret-credential"
PROMPT = "a-prompt-that-is-nobodys-business"
FOLDER = "/a/folder/of/the/client"


@dataclass(eq=False)
class Traffic:
    """Turns that their clients have seen the end of, by their model's name, and when."""

    completed: dict[str, float] = field(default_factory=dict)
    flowing: set[int] = field(default_factory=set)
    began: float = 0.0
    long_enough: trio.Event = field(default_factory=trio.Event)

    def note(self, number: int, model: str) -> None:
        now = self.completed[model] = time.time()
        if len(self.flowing) < STREAMS:
            self.flowing.add(number)
            self.began = now
        elif now - self.began > TRAFFIC_SECONDS:
            self.long_enough.set()

    async def over_http(self, child: Child, number: int) -> None:
        client = await child.proxy.connect()

        async def turn(model: str) -> None:
            await client.send(turn_of(number, model))
            assert (await client.answer()).status == 200

        await self._turns(number, turn)

    async def over_websocket(self, child: Child, number: int) -> None:
        socket = await child.proxy.websocket()

        async def turn(model: str) -> None:
            await socket.send({**create(f"t{number}"), "model": model})
            await socket.until("response.completed")

        await self._turns(number, turn)

    async def _turns(self, number: int, turn: Callable[[str], Awaitable[None]]) -> None:
        for count in itertools.count():
            await turn(f"m-{number}-{count}")
            self.note(number, f"m-{number}-{count}")


def turn_of(number: int, model: str) -> bytes:
    headers = {**named(f"t{number}"), "authorization": f"Bearer {SECRET}"}
    headers["x-codex-turn-metadata"] = json.dumps({"cwd": FOLDER})
    document = {"model": model, "stream": True, "input": PROMPT}
    return post(headers, json.dumps(document).encode())


async def recorded(home: Path) -> list[dict[str, Any]]:
    shown = await run(["log", "--json", "--lines", "1000000"], home)
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


@pytest.mark.load
async def test_what_ended_a_second_before_a_kill_is_in_the_journal(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    traffic = Traffic()
    with trio.fail_after(SECONDS):
        async with open_child(home, upstream.url) as child, trio.open_nursery() as clients:
            for number in range(STREAMS):
                client = traffic.over_http if number % 2 else traffic.over_websocket
                clients.start_soon(client, child, number)
            await traffic.long_enough.wait()
            child.process.kill()
            killed = time.time()
            clients.cancel_scope.cancel()
        offline = await recorded(home)
        async with open_child(home, upstream.url) as again:
            assert (await again.proxy.get("/readyz")).status == 200
            late = await again.proxy.connect()
            await late.send(post(body=b'{"stream":true,"model":"late"}'))
            await late.answer()
            assert await again.stop() == 0
        online = await recorded(home)

    due = {model for model, seen in traffic.completed.items() if seen < killed - LOST_SECONDS}
    kept = {record["model"] for record in offline}
    assert len(due) >= STREAMS
    assert due <= kept
    assert [record["model"] for record in online] == [
        *(record["model"] for record in offline),
        "late",
    ]


async def test_nothing_of_what_clients_say_is_in_the_journal(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with trio.fail_after(SECONDS):
        async with open_child(home, upstream.url) as child:
            client = await child.proxy.connect()
            await client.send(turn_of(1, "m"))
            await client.answer()
            await child.stop()
        records = await recorded(home)

    assert [(record["model"], record["status"]) for record in records] == [("m", 200)]
    for file in home.iterdir():
        content = file.read_bytes()
        for secret in (SECRET, PROMPT, FOLDER):
            assert secret.encode() not in content, file.name
