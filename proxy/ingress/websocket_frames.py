"""Frames to a WebSocket client, pure: what was taken from an outbox, as text frames."""

from collections.abc import Callable
from typing import Final

from proxy.ingress import replies
from proxy.journal.outcome import Outcome
from proxy.responses.forwarding import metadata_event, rate_limits_event
from proxy.turn.ended import Ended
from proxy.turn.outbox import Taken

FILLER: Final = b'{"type":"keepalive"}'
"""Codex's idle timer counts text frames, of whatever type, and no pings."""

InWords = Callable[[Ended], replies.ErrorReply]
"""Puts our own no into words for the client; asked for a turn that we ended, and for no other."""


def frames_of(taken: Taken, in_words: InWords, wall: float) -> list[bytes]:
    """Return what has come together as frames in order, the end of the turn included."""
    frames: list[bytes] = []
    if taken.head is not None:
        made = (metadata_event(taken.head.headers), rate_limits_event(taken.head.headers))
        frames.extend(frame for frame in made if frame is not None)
    for batch in taken.batches:
        data = batch.data if batch.raw.isascii() else map(_text, batch.data)
        frames.extend(filter(None, data))
    if taken.ended is not None:
        last = _last(taken.ended, in_words, wall)
        if last is not None:
            frames.append(_text(last))
    return frames


def _last(ended: Ended, in_words: InWords, wall: float) -> bytes | None:
    """The frame that ends a turn; None when its client is not told, or is gone."""
    if ended.final is not None:
        data = ended.final.data or b""
        if ended.final.type == "error":
            return replies.error_event_frame(data, wall)
        return data
    if ended.rejected is not None:
        return replies.rejected_frame(ended.rejected, wall)
    if ended.failure is not None:
        return replies.frame_form(replies.failed(ended.failure))
    match ended.outcome:
        case Outcome.REFUSED | Outcome.DISPLACED:
            return replies.frame_form(in_words(ended))
        case Outcome.CUT:
            return replies.frame_form(replies.cut(ended.detail))
        case Outcome.BROKEN:
            return replies.frame_form(replies.broken())
        case _:
            return None


def _text(data: bytes) -> bytes:
    """Valid UTF-8, which a text frame has to be; nearly everything is, and most is ASCII."""
    if data.isascii():
        return data
    return data.decode("utf-8", "replace").encode()
