"""Frames to a WebSocket client, pure: what was taken from an outbox, as text frames."""

from typing import Final, assert_never

from proxy.ingress import replies
from proxy.ingress.refusals import Audience, Figures, error_reply
from proxy.refusal import Refused
from proxy.responses.forwarding import metadata_event, rate_limits_event
from proxy.turn.ended import (
    Broken,
    Cancelled,
    Cut,
    Delivered,
    Displaced,
    Ended,
    Finished,
    Interrupted,
    Rejected,
)
from proxy.turn.outbox import Taken
from proxy.upstream.interface import Failure

FILLER: Final = b'{"type":"keepalive"}'
"""Codex's idle timer counts text frames of any type; pings do not reset it."""


def frames_of(taken: Taken, audience: Audience, figures: Figures, wall: float) -> list[bytes]:
    """Return what came together as frames, in order, the end of the turn included. `wall` is
    seconds since the epoch."""
    frames: list[bytes] = []
    if taken.head is not None:
        made = (metadata_event(taken.head.headers), rate_limits_event(taken.head.headers))
        frames.extend(frame for frame in made if frame is not None)
    for batch in taken.batches:
        data = batch.data if batch.raw.isascii() else map(_text, batch.data)
        frames.extend(filter(None, data))
    if taken.ended is not None:
        last = _last(taken.ended, audience, figures, wall)
        if last is not None:
            frames.append(_text(last))
    return frames


def _last(ended: Ended, audience: Audience, figures: Figures, wall: float) -> bytes | None:
    """Return the frame that ends a turn; None when its client is not told, or is gone."""
    match ended:
        case Finished() | Interrupted():
            data = ended.final.data or b""
            return replies.error_event_frame(data, wall) if ended.final.type == "error" else data
        case Rejected():
            return replies.rejected_frame(ended, wall)
        case Refused() | Displaced() | Failure() | Cut() | Broken():
            return replies.frame_form(error_reply(ended, audience, figures))
        case Delivered() | Cancelled():
            return None
        case _:
            assert_never(ended)


def _text(data: bytes) -> bytes:
    """Return valid UTF-8, which a text frame must be (RFC 6455 section 5.6)."""
    if data.isascii():
        return data
    return data.decode("utf-8", "replace").encode()
