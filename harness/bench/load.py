"""The clients of a bench: sessions side by side, each turn after turn, on bare sockets.

They share nothing with `harness.wire`: what they cost would be measured along with the proxy.

Prints one JSON document: turns, errors, and how long first events, turns and each event took.
With `--hold` its connections stay open after that, until its stdin ends.
"""

import argparse
import asyncio
import base64
import json
import os
import re
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import cast

KEY = bytes(4)
"""A mask of zeros is valid on the wire and keeps the client cheap."""
WRITTEN = re.compile(rb'"written_ns": ?(\d+)')
STAMP_BYTES = 40
CONTEXT_ITEM = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "word " * 180}],
}
TOOLS = [
    {
        "type": "function",
        "name": f"tool_{number}",
        "description": "what it does " * 23,
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    for number in range(20)
]


@dataclass
class LoadFigures:
    errors: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)


def body_of(model: str, size_kb: int, **more: object) -> bytes:
    """About what a coding agent sends: 8 kB of tools, and a context of messages."""
    context = [CONTEXT_ITEM] * max(1, size_kb - 8)
    fixed = {"model": model, "tools": TOOLS, "stream": True, "store": False, "tool_choice": "auto"}
    return json.dumps({**fixed, "input": context, **more}).encode()


def frame(payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes((0x81, 0x80 | size))
    elif size < 65536:
        head = bytes((0x81, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x81, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + KEY + payload


class LoadSession(asyncio.Protocol):
    """Sends a turn, and the next when it has ended."""

    def __init__(self, seen: LoadFigures, request: bytes, turns: int, *, timed: bool) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._seen = seen
        self._request = request
        self._left = turns
        self._timed = timed
        self._rest = b""
        self._tail = b""
        self._begun = 0.0
        self._first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open()

    def open(self) -> None:
        self.ask()

    def ask(self) -> None:
        self._first = 0.0
        self._begun = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._timed:
            self._time(data)
        self._rest += data
        self.read()

    def read(self) -> None:
        """HTTP: to the last chunk."""
        if not self._first and b"data: " in self._rest:
            self._first = time.perf_counter()
        if self._rest.endswith(b"0\r\n\r\n"):
            good = b" 200 " in self._rest[:20] and b"response.completed" in self._rest
            self.ended(None if good else self._rest[:300].decode("latin-1"))
        elif b"content-length: " in self._rest[:2000].lower() and not self._first:
            self.fail(self._rest[:300].decode("latin-1"))

    def ended(self, problem: str | None) -> None:
        now = time.perf_counter()
        if problem is None:
            self._seen.first.append(self._first - self._begun)
            self._seen.whole.append(now - self._begun)
        else:
            self._seen.errors.append(problem)
        self._rest, self._tail = b"", b""
        self._left -= 1
        if self._left:
            self.ask()
        else:
            self.over.set_result(None)

    def close(self) -> None:
        self._transport.close()

    def fail(self, problem: str) -> None:
        self._seen.errors.append(problem)
        self._left = 0
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._left:
            self._seen.errors.append(f"the connection was lost: {exc}")
        if not self.over.done():
            self.over.set_result(None)

    def _time(self, data: bytes) -> None:
        now = time.monotonic_ns()
        text = self._tail + data
        end = 0
        for match in WRITTEN.finditer(text):
            if match.end() < len(text):  # or its digits may go on
                self._seen.delays.append((now - int(match[1])) / 1e9)
                end = match.end()
        self._tail = text[max(end, len(text) - STAMP_BYTES) :]


class Socket(LoadSession):
    """The same on one WebSocket."""

    def __init__(
        self, seen: LoadFigures, request: bytes, turns: int, *, timed: bool, hello: bytes
    ) -> None:
        super().__init__(seen, request, turns, timed=timed)
        self._hello = hello
        self._upgraded = False

    def open(self) -> None:
        self._transport.write(self._hello)

    def read(self) -> None:
        if not self._upgraded:
            end = self._rest.find(b"\r\n\r\n")
            if end < 0:
                return
            head, self._rest = self._rest[:end], self._rest[end + 4 :]
            if b" 101 " not in head.split(b"\r\n")[0]:
                self.fail(head.decode("latin-1"))
            else:
                self._upgraded = True
                self.ask()
            return
        at = 0
        data = self._rest
        while (end := _end_of_frame(data, at)) <= len(data):
            self._hear(data[at] & 15, data[at:end])
            at = end
        self._rest = data[at:]

    def _hear(self, opcode: int, whole: bytes) -> None:
        if opcode == 9:
            self._transport.write(bytes((0x8A, 0x80)) + KEY)
        elif opcode == 8:
            self.fail(f"closed: {whole!r}")
        else:
            self._first = self._first or time.perf_counter()
            if b'"response.completed"' in whole and b'"usage"' in whole:
                self.ended(None)
            elif b'"error"' in whole[:40]:
                self.fail(whole[:300].decode("latin-1"))


def _end_of_frame(data: bytes, at: int) -> int:
    """Return where the frame that begins there ends; beyond the data while that is unknown."""
    unknown = len(data) + 1
    if len(data) < at + 2:
        return unknown
    size = data[at + 1] & 127
    if size < 126:
        return at + 2 + size
    width = 2 if size == 126 else 8
    if len(data) < at + 2 + width:
        return unknown
    return at + 2 + width + int.from_bytes(data[at + 2 : at + 2 + width], "big")


def _session(options: argparse.Namespace, seen: LoadFigures) -> LoadSession:
    name = uuid.uuid4()
    who = f"session-id: {name}\r\nthread-id: {name}\r\nauthorization: Bearer sk-bench\r\n"
    host = f"host: 127.0.0.1:{options.port}\r\n"
    if options.transport == "http":
        body = body_of(options.model, options.kb)
        head = (
            f"POST /v1/responses HTTP/1.1\r\n{host}{who}content-type: application/json\r\n"
            f"accept: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return LoadSession(seen, head.encode() + body, options.turns, timed=options.timed)
    key = base64.b64encode(os.urandom(16)).decode()
    hello = (
        f"GET /v1/responses HTTP/1.1\r\n{host}{who}connection: Upgrade\r\nupgrade: websocket\r\n"
        f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n"
        "openai-beta: responses_websockets=2026-02-06\r\n"
        "sec-websocket-extensions: permessage-deflate\r\n\r\n"
    )
    request = frame(body_of(options.model, options.kb, type="response.create"))
    return Socket(seen, request, options.turns, timed=options.timed, hello=hello.encode())


def _quantile(values: list[float], share: float) -> float | None:
    found = sorted(values)
    return 1000 * found[min(len(found) - 1, int(share * len(found)))] if found else None


async def _main(options: argparse.Namespace) -> None:
    seen, loop = LoadFigures(), asyncio.get_running_loop()
    sessions = [_session(options, seen) for _ in range(options.sessions)]
    waiting = iter(sessions)
    for _ in sessions:
        await asyncio.sleep(options.stagger)
        await loop.create_connection(lambda: next(waiting), "127.0.0.1", options.port)
    await asyncio.gather(*(session.over for session in sessions))
    document = {
        "turns": len(seen.whole),
        "errors": seen.errors[:3],
        "first_ms": _quantile(seen.first, 0.5),
        "whole_ms": _quantile(seen.whole, 0.5),
        "delay_ms": _quantile(seen.delays, 0.5),
        "delay_p99_ms": _quantile(seen.delays, 0.99),
    }
    print(json.dumps(document), flush=True)  # noqa: T201  # it is what this program is for
    if options.hold:
        await loop.run_in_executor(None, sys.stdin.read)
    for session in sessions:
        session.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transport", choices=["http", "ws"])
    parser.add_argument("port", type=int)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--kb", type=int, default=30)
    parser.add_argument("--model", default="bench")
    parser.add_argument("--stagger", type=float, default=0.0, help="seconds between two sessions")
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--hold", action="store_true")
    asyncio.run(_main(parser.parse_args()))
