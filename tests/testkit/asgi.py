"""ASGI clients on memory channels: they do between a socket and the app what hypercorn does.

Three of its manners matter here. `receive` comes from a queue of 10. `send` takes a lock, where it
can be cancelled, and then writes shielded, so a client that stops reading holds its writer. And
`send` to a client that has left does nothing. Each is also the `ClientConnection` below the app,
whose writes cannot be cancelled at all.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import trio

from proxy.ingress.app import App
from proxy.ingress.asgi import Scope

QUEUE = 10
PATIENCE_SECONDS = 3600.0
"""On the virtual clock: what has not happened by then never will."""

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A no, from whichever form it came in."""

    status: int
    code: str | None
    message: str
    retry_after: str | None = None
    reason: str | None = None
    resets_at: int | None = None


class Client:
    """One connection, of either kind: it can stop reading, and it can hang up."""

    _disconnect: str

    def __init__(self, app: App, scope: Scope, name: str, log: Log) -> None:
        self._app = app
        self._scope = scope
        self._name = name
        self._log = log
        self._to_app, self._from_client = trio.open_memory_channel[dict[str, Any]](QUEUE)
        self._lock = trio.Lock()
        self._flowing = trio.Event()
        self._flowing.set()
        self._news = trio.lowlevel.ParkingLot()
        self.gone = False
        self.returned = False
        """The app has returned: nothing more comes."""
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.complete = False
        """The last byte of an HTTP answer was sent, and marked as the last."""
        self.events: list[dict[str, Any]] = []
        self._seen = Counter[str]()
        self.seen_at: list[float] = []
        self.on_event: Callable[[str], None] = lambda _type: None

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def types(self) -> list[str]:
        return [event.get("type", "") for event in self.events]

    @property
    def refused(self) -> Refused:
        """The HTTP answer, read as a no."""
        assert self.status is not None
        assert self.complete
        error = json.loads(self.body)["error"]
        return Refused(
            status=self.status,
            code=error["code"],
            message=error["message"],
            retry_after=self.headers.get("retry-after"),
            reason=self.headers.get("x-turnlane-refusal"),
            resets_at=error.get("resets_at"),
        )

    async def run(self) -> None:
        """Serve it to its end. A server that is cancelled closes its sockets."""
        async with trio.open_nursery() as connection:
            connection.start_soon(self._close_when_cancelled)
            await self._app(self._scope, self._receive, self._send, self)
            self.returned = True
            self._from_client.close()
            connection.cancel_scope.cancel()
        self._news.unpark_all()

    # The connection below the app; what belongs to the other kind of client is not used.

    @property
    def chunked(self) -> bool:
        return False

    def hold(self) -> None:
        """Together or not, it is the same here."""

    async def send_chunk(self, content: bytes) -> None:
        raise NotImplementedError

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        raise NotImplementedError

    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        raise NotImplementedError

    def stop_reading(self) -> None:
        """The next write does not return, until `read_on` or `hang_up`."""
        if self._flowing.is_set():
            self._flowing = trio.Event()

    def read_on(self) -> None:
        self._flowing.set()

    async def wait_until(self, condition: Callable[[], object]) -> Self:
        """Return the client once `condition` holds, which is checked whenever something arrives."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not condition():
                await self._news.park()
        return self

    async def wait_for(self, kind: str, times: int = 1) -> Self:
        """Return the client once it has seen an event of a type so many times."""
        return await self.wait_until(lambda: self._seen[kind] >= times)

    async def wait_returned(self) -> Self:
        """Return the client once the app has returned."""
        return await self.wait_until(lambda: self.returned)

    async def wait_answered(self) -> Self:
        """Return the client once it has a whole HTTP answer, an error frame, or nothing to come."""
        return await self.wait_until(lambda: self.complete or self._seen["error"] or self.returned)

    async def hang_up(self) -> None:
        self.gone = True
        self._flowing.set()
        await self._put({"type": self._disconnect})

    async def _put(self, message: dict[str, Any]) -> None:
        with suppress(trio.BrokenResourceError):  # the app has returned and hears nothing more
            await self._to_app.send(message)

    async def _receive(self) -> dict[str, Any]:
        message = await self._from_client.receive()
        message.pop("meanwhile", lambda: None)()
        return message

    async def _close_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if not self.returned:
                self.gone = True
                self._flowing.set()

    async def _write(self) -> bool:
        """False: the client has left."""
        async with self._lock:
            with trio.CancelScope(shield=True):
                await self._flowing.wait()
        return not self.gone

    async def _send(self, message: Scope) -> None:
        raise NotImplementedError

    def _begun(self, message: Scope) -> None:
        assert self.status is None, "an answer begins once"
        self.status = message["status"]
        self.headers = {name.decode(): value.decode() for name, value in message["headers"]}

    def _took(self, message: Scope) -> None:
        assert self.status is not None, "a body has a head"
        assert not self.complete, "nothing follows the last byte"
        self.chunks.append(message["body"])
        if not message["more_body"]:
            self.complete = True
            announced = self.headers.get("content-length")
            assert announced is None or int(announced) == len(self.body)

    def _saw(self, data: str | bytes) -> None:
        event = json.loads(data)
        kind = event.get("type", "")
        self.events.append(event)
        self._seen[kind] += 1
        self.seen_at.append(trio.current_time())
        self._log(f"{self._name} sees {kind}")
        self.on_event(kind)


class HttpClient(Client):
    """One HTTP request on its own connection."""

    _disconnect = "http.disconnect"

    async def send_body(self, chunk: bytes, *, more: bool) -> None:
        await self._put({"type": "http.request", "body": chunk, "more_body": more})

    def send_body_nowait(self, body: bytes) -> None:
        """All of it; its end is a message of its own, as hypercorn has it."""
        self._to_app.send_nowait({"type": "http.request", "body": body, "more_body": True})
        self._to_app.send_nowait({"type": "http.request", "body": b"", "more_body": False})

    @property
    def chunked(self) -> bool:
        return "content-length" not in self.headers

    async def send_chunk(self, content: bytes) -> None:
        assert content, "an empty chunk is the end"
        with trio.CancelScope(shield=True):
            await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def _send(self, message: Scope) -> None:
        if not await self._write():
            return
        if message["type"] == "http.response.start":
            self._begun(message)
        else:
            self._took(message)
            if self.headers.get("content-type", "").startswith("text/event-stream"):
                for block in message["body"].split(b"\n\n"):
                    lines = [x[6:] for x in block.split(b"\n") if x.startswith(b"data: ")]
                    if lines:
                        self._saw(b"\n".join(lines))
        self._news.unpark_all()
        if self.complete:
            await self._put({"type": "http.disconnect"})


class SocketClient(Client):
    """One WebSocket, or the refusal of one."""

    _disconnect = "websocket.disconnect"

    def __init__(self, app: App, scope: Scope, name: str, log: Log) -> None:
        super().__init__(app, scope, name, log)
        self.accepted = False
        self.closed_with: int | None = None
        self.told: Callable[[int], None] | None = None
        self.frames: list[bytes] = []
        self.writes: list[int] = []
        """How many frames came together, write by write."""

    @property
    def refused(self) -> Refused:
        """The last error frame, or the answer to a denied handshake."""
        if not self.accepted:
            return super().refused
        frame = next(event for event in reversed(self.events) if event["type"] == "error")
        return Refused(
            status=frame["status"],
            code=frame["error"].get("code"),
            message=frame["error"]["message"],
            retry_after=frame["headers"].get("retry-after"),
            reason=frame["headers"].get("x-turnlane-refusal"),
            resets_at=frame["error"].get("resets_at"),
        )

    async def run(self) -> None:
        await self._put({"type": "websocket.connect"})
        await super().run()
        if self.accepted and not self.gone and self.closed_with is None:
            self.closed_with = 1011  # hypercorn's word for an app that just returns

    async def say(self, frame: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """`meanwhile` happens when the app has the frame in hand, and has not yet acted on it."""
        message = {"type": "websocket.receive", "bytes": None, "text": frame}
        await self._put(message | {"meanwhile": meanwhile})

    async def complete_turn(self, frame: str) -> None:
        """Say it, and wait for the `response.completed` that it leads to."""
        await self.say_until("response.completed", frame)

    async def say_until(self, kind: str, frame: str) -> None:
        """Say it, and wait for one more event of a type."""
        seen = self._seen[kind]
        await self.say(frame)
        await self.wait_for(kind, seen + 1)

    def say_nowait(self, frame: str) -> None:
        self._to_app.send_nowait({"type": "websocket.receive", "bytes": None, "text": frame})

    async def say_binary(self, frame: bytes) -> None:
        await self._put({"type": "websocket.receive", "bytes": frame, "text": None})

    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        self.told = told

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        with trio.CancelScope(shield=True):
            if not await self._write():
                return
        assert self.closed_with is None, "nothing follows a close"
        self.writes.append(len(frames))
        for frame in frames:
            self.frames.append(frame)
            self._saw(frame.decode())
        self._news.unpark_all()

    async def _send(self, message: Scope) -> None:
        if not await self._write():
            return
        match message["type"]:
            case "websocket.accept":
                self.accepted = True
            case "websocket.close":
                self.closed_with = message["code"]
                await self._put({"type": "websocket.disconnect"})
            case "websocket.http.response.start":
                self._begun(message)
            case _:
                self._took(message)
        self._news.unpark_all()
