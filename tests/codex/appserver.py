"""`codex app-server`, driven by JSON-RPC over its standard input and output."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import trio

from tests.codex.cli import Codex
from tests.codex.log import Log

STOP_SECONDS = 5
Json = dict[str, Any]


class AppServer:
    """A running app-server; every line it ever wrote is in `said`."""

    def __init__(self, codex: Codex, process: trio.Process) -> None:
        self.said: Log[Json] = Log()
        self._codex = codex
        self._process = process
        self._ids = count(1)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, method: str, params: Json) -> Json:
        """The result of one request; an AssertionError when it is refused."""
        reply = await self._ask(method, params)
        assert "result" in reply, f"{method}: {reply}"
        result: Json = reply["result"]
        return result

    async def _ask(self, method: str, params: Json) -> Json:
        call_id = next(self._ids)
        since = len(self.said)
        await self._send({"id": call_id, "method": method, "params": params})
        return await self.said.wait(
            lambda line: line.get("id") == call_id and "method" not in line, since=since
        )

    async def wait_note(
        self, method: str, fits: Callable[[Json], bool], *, since: int = 0, seconds: float = 20
    ) -> Json:
        """The parameters of the first notification of that name that fits."""
        note = await self.said.wait(
            lambda line: line.get("method") == method and fits(line["params"]),
            since=since,
            seconds=seconds,
        )
        params: Json = note["params"]
        return params

    async def start_thread(self) -> str:
        params = {
            "cwd": str(self._codex.cwd),
            "approvalPolicy": "never",
            "sandbox": "danger-full-access",
        }
        thread: str = (await self.call("thread/start", params))["thread"]["id"]
        return thread

    async def begin_turn(self, thread: str, text: str) -> str:
        params = {"threadId": thread, "input": [{"type": "text", "text": text}]}
        turn: str = (await self.call("turn/start", params))["turn"]["id"]
        return turn

    async def wait_turn(self, turn: str, *, since: int = 0, seconds: float = 30) -> Json:
        """The turn as it ended: its `status` and, if it failed, its `error`."""
        params = await self.wait_note(
            "turn/completed",
            lambda params: params["turn"]["id"] == turn,
            since=since,
            seconds=seconds,
        )
        ended: Json = params["turn"]
        return ended

    async def turn(self, thread: str, text: str, *, seconds: float = 30) -> Json:
        since = len(self.said)
        turn = await self.begin_turn(thread, text)
        return await self.wait_turn(turn, since=since, seconds=seconds)

    async def interrupt(self, thread: str, turn: str) -> None:
        await self.call("turn/interrupt", {"threadId": thread, "turnId": turn})

    async def interrupt_if_running(self, thread: str, turn: str) -> bool:
        """Whether there was still something to interrupt."""
        reply = await self._ask("turn/interrupt", {"threadId": thread, "turnId": turn})
        return "result" in reply

    async def steer(self, thread: str, turn: str, text: str) -> None:
        """Say something more while that turn runs."""
        message = [{"type": "text", "text": text}]
        params = {"threadId": thread, "expectedTurnId": turn, "input": message}
        await self.call("turn/steer", params)

    def answers(self) -> list[str]:
        """What the agent said, message by message."""
        items = [
            line["params"]["item"]
            for line in self.said.entries
            if line.get("method") == "item/completed"
        ]
        return [item["text"] for item in items if item["type"] == "agentMessage"]

    def everything(self) -> str:
        return "\n".join(json.dumps(line) for line in self.said.entries)

    async def stop(self) -> None:
        self._process.terminate()
        with trio.move_on_after(STOP_SECONDS):
            await self._process.wait()
            return
        self._process.kill()

    async def _send(self, line: Json) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(json.dumps(line).encode() + b"\n")

    async def read(self) -> None:
        """Collect what the server writes, to its end."""
        assert self._process.stdout is not None
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.said.append(json.loads(line))

    async def greet(self) -> None:
        client = {"name": "turnlane_tests", "title": "turnlane tests", "version": "1"}
        await self.call(
            "initialize",
            {"clientInfo": client, "capabilities": {"experimentalApi": True}},
        )
        await self._send({"method": "initialized", "params": {}})


async def start_app_server(
    nursery: trio.Nursery, codex: Codex, *, options: tuple[str, ...] = ()
) -> AppServer:
    """An app-server that has been greeted; the end of the nursery ends it too."""
    with (codex.root / "app-server.txt").open("wb") as errors:
        run = partial(
            trio.run_process,
            [str(codex.binary), *options, "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            check=False,
            cwd=codex.cwd,
            env=codex.environment(),
        )
        process: trio.Process = await nursery.start(run)
    server = AppServer(codex, process)
    nursery.start_soon(server.read)
    await server.greet()
    return server
