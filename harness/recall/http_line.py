"""A session over HTTP, with a new connection and the whole history for each request."""

import re
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec
import trio

from harness.recall.calls import Item
from harness.recall.line import Address, LineClosed, LineMessage, StreamEvent, read_object, refusal
from harness.recall.plan import ScriptedExchange, SessionPlan
from harness.recall.requests import body, headers
from harness.wire.client import CutError, WireClient, open_client, request

_FRAME_END = re.compile(rb"\r?\n\r?\n")


class HttpLine:
    ends_itself = True

    def __init__(self, address: Address, session: SessionPlan) -> None:
        self._address = address
        self._session = session
        self._http: WireClient | None = None
        self._messages = deque[LineMessage]()
        self._events = EventReader()
        self._status: int | None = None

    async def send(self, exchange: ScriptedExchange, items: Sequence[Item]) -> None:
        await self.drop()
        self._messages.clear()
        self._events, self._status = EventReader(), None
        data = msgspec.json.encode(body(self._session, exchange, items))
        fields = (("host", self._address.authority), *headers(self._session, exchange))
        try:
            self._http = await open_client(self._address.host, self._address.port)
            await self._http.send(request("POST", "/v1/responses", fields, data))
        except CutError:
            self._messages.append(LineClosed(clean=False))
        except trio.BrokenResourceError:
            return  # refused before it was read: the answer may be there all the same

    async def receive(self) -> LineMessage:
        while not self._messages:
            try:
                await self._read_more()
            except CutError:
                self._messages.append(LineClosed(clean=False))
        return self._messages.popleft()

    async def interrupt(self) -> bool:
        """Over HTTP there is only one way to stop a response."""
        await self.drop()
        return False

    async def leftovers(self) -> Sequence[LineMessage]:
        """Nothing: each answer was read until its stream ended."""
        return ()

    async def drop(self) -> None:
        if self._http is not None:
            await self._http.hang_up()
            self._http = None

    async def _read_more(self) -> None:
        if self._http is None:
            raise CutError("not connected")
        if self._status is None:
            head = await self._http.head()
            self._status = head.status
            if head.status != 200:
                document = read_object(await self._http.body())
                refused = refusal(document, head.status, head.headers)
                self._messages += [refused, LineClosed(clean=True)]
                await self.drop()
                return
        if data := await self._http.more():
            self._messages.extend(self._events.feed(data))
        else:
            self._messages.append(LineClosed(clean=self._events.empty))
            await self.drop()


class EventReader:
    """The events of a server-sent stream, however it was cut into pieces."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def empty(self) -> bool:
        """True if no piece of an unfinished event is left."""
        return not self._rest

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        *frames, self._rest = _FRAME_END.split(self._rest + data)
        for frame in frames:
            lines = [line for line in frame.splitlines() if line.startswith(b"data:")]
            if lines:
                told = b"\n".join(line[5:].strip() for line in lines)
                yield StreamEvent(read_object(told), frame)
