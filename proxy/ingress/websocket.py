"""One WebSocket: many turns, one at a time, and the transcript that lets increments continue.

Theory of operation
-------------------
The connection nursery has three parties. The reader awaits `receive` from the first moment to the
last and decides about each frame synchronously, so nothing can hide a hang-up from it. The writer
is the only one that writes; it takes the outboxes of the socket's turns in order. Turns run as
tasks beside them.

A `response.create` that arrives while a turn runs replaces it: the ledger reserves the place first,
and only if that is granted is the earlier turn cancelled. A turn whose terminal event has been read
upstream is not replaced any more; the new one follows it.
"""

import uuid
from dataclasses import replace
from typing import Final, assert_never

import trio

from lifecycle import AdmissionRefused, Ask, Cause, Waiting
from proxy.ingress.asgi import (
    GOING_AWAY,
    POLICY,
    TOO_BIG,
    TRY_AGAIN_LATER,
    ClientRequest,
    Close,
    Receive,
    Send,
)
from proxy.ingress.auth import may_call
from proxy.ingress.identity import from_frame
from proxy.ingress.refusals import Audience, error_reply
from proxy.ingress.replies import frame_form, http_form
from proxy.ingress.websocket_frames import FILLER, frames_of
from proxy.ingress.websocket_turn import StoredTranscript, WebSocketTurn
from proxy.refusal import Reason, Refused, by_admission
from proxy.responses.events import prewarmed
from proxy.responses.frames import Create, Ignored, Interrupt, read_frame
from proxy.responses.transcript import Transcript, continued
from proxy.runtime import Runtime
from proxy.turn.outbox import Outbox, Taken, hand_on

_UNWRITTEN: Final = 64
"""Answers that wait for the writer; a client that makes more without reading is not served."""
_ANSWERS: Final = 8
"""More than one message can lead to. Kept free, so that deciding never fails half-way."""


async def serve_websocket(runtime: Runtime, request: ClientRequest) -> None:
    """Serve `GET /v1/responses`, upgraded to a WebSocket."""
    try:
        with runtime.admission.websocket():
            await request.send({"type": "websocket.accept"})
            socket = ClientSocket(runtime, request)
            try:
                await _run(socket, request.receive, request.send)
            finally:
                socket.forget()
    except AdmissionRefused as no:
        await deny(runtime, request, by_admission(no))


async def deny(runtime: Runtime, request: ClientRequest, refused: Refused) -> None:
    """Record a refusal, and answer the handshake with a plain HTTP response."""
    runtime.journal.refused(
        refused.reason,
        transport=request.transport,
        wall=runtime.wall(),
        principal=request.identity.principal,
    )
    no = error_reply(refused, request.audience, request.figures)
    status, headers, body = http_form(no, close=True)
    start = {"type": "websocket.http.response.start", "status": status, "headers": headers}
    await request.send(start)
    await request.send({"type": "websocket.http.response.body", "body": body, "more_body": False})


async def _run(socket: "ClientSocket", receive: Receive, send: Send) -> None:
    async with trio.open_nursery() as connection:
        connection.start_soon(socket.write, send, connection.cancel_scope)
        connection.start_soon(socket.leave_on_drain)
        while (message := await receive())["type"] != "websocket.disconnect":
            if message["type"] != "websocket.receive":
                continue
            if not socket.hear(message.get("text"), connection):
                break
        socket.leave()
        connection.cancel_scope.cancel()


class ClientSocket:
    """The turns of one WebSocket, its transcript, and what waits to be written to it."""

    def __init__(self, runtime: Runtime, request: ClientRequest) -> None:
        self._runtime = runtime
        self._request = request
        self._identity = request.identity
        self._connection = request.connection
        self._connection.watch_unfinished(self._meter)
        self._current: WebSocketTurn | None = None
        self._kept = StoredTranscript(runtime.admission.memory)
        self._unfinished = runtime.admission.memory.reserve(0)
        self._to_write, self._written = trio.open_memory_channel[Outbox | bytes | Close](_UNWRITTEN)

    # Reading: all synchronous.

    def hear(self, text: str | None, connection: trio.Nursery) -> bool:
        """Decide about one message. Return False to end the connection, since its client does not
        read the answers."""
        if self._unfinished is None:  # it is being closed
            return True
        injected = 0 if self._current is None else self._current.outbox.injected
        if self._to_write.statistics().current_buffer_used + injected > _UNWRITTEN - _ANSWERS:
            return False
        runtime = self._runtime
        if not may_call(runtime.keys, runtime.config.server.host, self._identity.principal):
            detail = "the key was revoked, or keys are required now"
            self._stop(Refused(reason=Reason.UNAUTHORIZED, detail=detail), POLICY)
        elif text is None:
            detail = "binary frames are not part of this protocol"
            self._refuse(Refused(reason=Reason.UNSUPPORTED_FRAME, detail=detail))
        else:
            self._hear_text(text.encode("utf-8", "surrogatepass"), connection)
        return True

    def _hear_text(self, frame: bytes, connection: trio.Nursery) -> None:
        self._meter(0)
        if len(frame) > self._runtime.config.client.body_bytes:
            self._refuse(Refused(reason=Reason.TOO_LARGE))
            return
        match read_frame(frame):
            case Create() as create:
                self._create(create, connection)
            case Interrupt(response_id):
                if self._current is not None and not self._current.over:
                    self._current.interrupt(response_id)
            case Ignored():
                pass
            case Refused() as refused:
                self._refuse(refused)
            case unknown:
                assert_never(unknown)

    def _create(self, create: Create, connection: trio.Nursery) -> None:
        identity = from_frame(create.metadata, self._identity)
        self._identity = replace(self._identity, codex=identity.codex)
        before = None
        if create.previous_response_id is not None:
            before = self._kept.transcript
            if before is None or before.response_id != create.previous_response_id:
                detail, reason = create.previous_response_id, Reason.PREVIOUS_RESPONSE_NOT_FOUND
                self._refuse(Refused(reason=reason, detail=detail))
                return
        if create.prewarm:
            self._prewarm(create, before)
            return
        client = self._runtime.config.client
        turn = WebSocketTurn(
            create=create,
            before=before,
            headers=self._request.headers,
            query=self._request.query,
            outbox=Outbox(client.outbox_bytes, client.stall_seconds),
            kept=self._kept,
        )
        held = create.size + (0 if before is None else before.size)
        self._start(turn, identity.ask(held), connection)

    def _start(self, turn: WebSocketTurn, ask: Ask, connection: trio.Nursery) -> None:
        current = self._current
        after: trio.Event | None = None
        if current is not None and not current.over:
            if current.terminal_seen or (current.lease_id is None and current.waiting is None):
                # It ends by itself, or it holds nothing yet: the new one asks after its end.
                if not current.terminal_seen:
                    current.replace()
                after = current.finished
            else:
                try:
                    turn.waiting = self._succeed(current, ask)
                except AdmissionRefused as no:
                    self._refuse(by_admission(no), ask)
                    return
                current.replace()
        self._to_write.send_nowait(turn.outbox)
        self._current = turn
        connection.start_soon(self._run_turn, turn, turn.waiting or ask, after)

    def _succeed(self, current: WebSocketTurn, ask: Ask) -> Waiting:
        admission = self._runtime.admission
        if current.lease_id is not None:
            return admission.succeed(current.lease_id, ask)
        assert current.waiting is not None
        return admission.succeed(current.waiting.earlier, ask, instead_of=current.waiting)

    def _prewarm(self, create: Create, before: Transcript | None) -> None:
        if self._current is not None and not self._current.over:
            self._current.forgotten = True  # what can be continued is the prewarm
            if not self._current.terminal_seen:
                self._current.replace()
        name = f"resp_{uuid.uuid4().hex}"
        self._kept.remember(Transcript(response_id=name, items=continued(before, create.input)))
        for frame in prewarmed(name, create.model, self._runtime.wall()):
            self._to_write.send_nowait(frame)

    def _refuse(self, refused: Refused, ask: Ask | None = None) -> None:
        frame = self._no(refused, ask)
        if self._current is not None and self._current.speaking:
            self._current.outbox.inject(frame)
        else:
            self._to_write.send_nowait(frame)

    def _no(self, refused: Refused, ask: Ask | None = None) -> bytes:
        """Record a refusal, and return its frame."""
        runtime = self._runtime
        runtime.journal.refused(
            refused.reason,
            transport=self._request.transport,
            wall=runtime.wall(),
            principal=self._identity.principal,
            ask=ask,
            root=None if ask is None else runtime.admission.workflows.root(ask),
        )
        return frame_form(error_reply(refused, self._audience, self._request.figures))

    @property
    def _audience(self) -> Audience:
        """Like the request's, but a frame may be the first to show that the client is Codex."""
        return Audience(codex=self._identity.codex, transport=self._request.transport)

    def _meter(self, unfinished: int) -> None:
        """Hold the bytes of a message that has arrived in part. Too many end the socket."""
        if self._unfinished is None:
            return
        if unfinished > self._runtime.config.client.message_bytes:
            refused = Refused(reason=Reason.TOO_LARGE)
            self._stop(refused, TOO_BIG)  # hypercorn has said so already, and drops the rest
        elif not self._unfinished.resize(unfinished):
            self._stop(Refused(reason=Reason.MEMORY_AT_CAPACITY), TRY_AGAIN_LATER)

    def _stop(self, refused: Refused, code: int) -> None:
        """Refuse a message, and end the socket and its turn with it."""
        assert self._unfinished is not None
        self._unfinished.give_back()
        self._unfinished = None
        self.leave()
        self._to_write.send_nowait(self._no(refused))
        self._to_write.send_nowait(Close(code))

    # Turns.

    async def _run_turn(
        self, turn: WebSocketTurn, ask: Ask | Waiting, after: trio.Event | None
    ) -> None:
        try:
            await self._runtime.turns.run(ask, turn, after)
        finally:
            turn.finished.set()

    def leave(self) -> None:
        """End the running turn, since the client has left or is being disconnected."""
        if self._current is not None:
            self._current.turn_scope.cancel(Cause.CLIENT_GONE)

    def forget(self) -> None:
        """Give back what the socket holds, once it is closed."""
        self._kept.forget()
        self._connection.watch_unfinished(None)
        if self._unfinished is not None:
            self._unfinished.give_back()
            self._unfinished = None

    # Writing.

    async def write(self, send: Send, connection: trio.CancelScope) -> None:
        """Write everything that goes to the client. hypercorn shields its writes, so only this task
        can be held by a client that does not read."""
        async for item in self._written:
            match item:
                case Close(code):
                    await send({"type": "websocket.close", "code": code})
                    connection.cancel()
                case Outbox():
                    await self._write_turn(item)
                case frame:
                    await self._connection.send_frames([frame])

    async def _write_turn(self, outbox: Outbox) -> None:
        figures = self._request.figures

        async def write(taken: Taken) -> bool:
            frames = frames_of(taken, self._audience, figures, self._runtime.wall())
            if frames:
                await self._connection.send_frames(frames)
            return taken.ended is None

        async def fill() -> None:
            await self._connection.send_frames([FILLER])

        await hand_on(outbox, write, self._runtime.config.client.filler_seconds, fill)

    async def leave_on_drain(self) -> None:
        """Close with 1001 once the door is closed and no turn runs."""
        await self._runtime.admission.door_closed.wait()
        while self._current is not None and not self._current.finished.is_set():
            await self._current.finished.wait()
        await self._to_write.send(Close(GOING_AWAY))
