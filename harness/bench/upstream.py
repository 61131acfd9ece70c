"""The upstream of a bench: answers every turn with the same events, at once or at a pace.

It shares nothing with `harness.wire`: what it costs would be measured along with the proxy.

Arguments: port, events, seconds between two events. Every event says when it was written, on the
clock that all processes of a machine share, so a client can tell how long it was on its way.
"""

import asyncio
import json
import sys
import time
from typing import cast

TEXT = "twelve bytes"
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"x-request-id: bench\r\n\r\n"
)
LAST = b"0\r\n\r\n"


def events_of_a_turn(count: int) -> list[bytes]:
    """The data of each event: created, an item, deltas, the item again, completed."""
    content = [{"type": "output_text", "text": TEXT * count, "annotations": []}]
    item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "bench"}
    usage = {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 900},
        "output_tokens": count,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 1000 + count,
    }
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "delta": TEXT}
    whole = {**response, "status": "completed", "output": [item], "usage": usage}
    made: list[dict[str, object]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "item": {**item, "content": []}},
        *({**delta, "output_index": 0, "content_index": 0} for _ in range(count)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [json.dumps({**event, "sequence_number": n}).encode() for n, event in enumerate(made)]


def chunk(data: bytes) -> bytes:
    event = b"event: bench\ndata: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


class BenchConnection(asyncio.Protocol):
    """One connection of a proxy: request after request."""

    def __init__(self, events: list[bytes], pause_seconds: float) -> None:
        self._events = events
        self._at_once = HEAD + b"".join(map(chunk, events)) + LAST
        self._pause_seconds = pause_seconds
        self._arrived = bytearray()
        self._wanted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        while True:
            if not self._wanted:
                end = self._arrived.find(b"\r\n\r\n")
                if end < 0:
                    return
                self._wanted = end + 4 + _length(bytes(self._arrived[:end]))
            if len(self._arrived) < self._wanted:
                return
            get = self._arrived.startswith(b"GET ")
            del self._arrived[: self._wanted]
            self._wanted = 0
            self._answer(get=get)

    def _answer(self, *, get: bool) -> None:
        if get:  # a peer asks for models when it starts
            models = b'{"object":"list","data":[{"id":"bench","object":"model"}]}'
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            self._transport.write(head % len(models) + models)
        elif self._pause_seconds:
            self._transport.write(HEAD + chunk(self._events[0]) + chunk(self._events[1]))
            loop = asyncio.get_running_loop()
            loop.call_later(self._pause_seconds, self._go_on, 2, loop.time())
        else:
            self._transport.write(self._at_once)

    def _go_on(self, number: int, due: float) -> None:
        if self._transport.is_closing():
            return
        stamped = self._events[number][:-1] + b',"written_ns":%d}' % time.monotonic_ns()
        last = number + 1 == len(self._events)
        self._transport.write(chunk(stamped) + (LAST if last else b""))
        if not last:
            due += self._pause_seconds
            asyncio.get_running_loop().call_at(
                due + self._pause_seconds, self._go_on, number + 1, due
            )


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _main(port: int, count: int, pause_seconds: float) -> None:
    events = events_of_a_turn(count)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: BenchConnection(events, pause_seconds), "127.0.0.1", port, backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
