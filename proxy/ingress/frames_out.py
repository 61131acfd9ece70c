"""Frames to a WebSocket client, pure: what was taken from an outbox, as text frames."""

from typing import Final

from proxy.headers import metadata_event, rate_limits_event
from proxy.ingress import replies
from proxy.ingress.ask import Identity
from proxy.ingress.reasons import refusal
from proxy.outbox import Ended, Outcome, SpentQuota, Taken
from proxy.runtime import Runtime

FILLER: Final = b'{"type":"keepalive"}'
"""Codex's idle timer counts text frames, of whatever type, and no pings."""


def frames_of(runtime: Runtime, taken: Taken, identity: Identity) -> list[bytes]:
    """What has come together, as frames in order, the end of the turn included."""
    frames: list[bytes] = []
    if taken.head is not None:
        made = (metadata_event(taken.head.headers), rate_limits_event(taken.head.headers))
        frames.extend(frame for frame in made if frame is not None)
    for batch in taken.batches:
        data = batch.data if batch.raw.isascii() else map(_text, batch.data)
        frames.extend(filter(None, data))
    if taken.ended is not None:
        last = _last(runtime, taken.ended, identity)
        if last is not None:
            frames.append(_text(last))
    return frames


def no_frame(
    runtime: Runtime,
    reason: str,
    identity: Identity,
    detail: str = "",
    retry_seconds: float | None = None,
    spent: SpentQuota | None = None,
    *,
    asked: bool = False,
) -> bytes:
    no = refusal(
        runtime,
        reason,
        codex=identity.codex,
        transport="websocket",
        detail=detail,
        retry_seconds=retry_seconds,
        spent=spent,
        asked=asked,
    )
    return replies.frame_form(no)


def _last(runtime: Runtime, ended: Ended, identity: Identity) -> bytes | None:
    """The frame that ends a turn; None when its client is not told, or is gone."""
    if ended.final is not None:
        data = ended.final.data or b""
        if ended.final.type == "error":
            return replies.error_event_frame(data, runtime.wall())
        return data
    if ended.rejected is not None:
        return replies.rejected_frame(ended.rejected, runtime.wall())
    if ended.failure is not None:
        return replies.frame_form(replies.failed(ended.failure))
    match ended.outcome:
        case Outcome.REFUSED:
            reason = ended.refusal or ""
            said = (ended.detail, ended.retry_seconds, ended.spent)
            return no_frame(runtime, reason, identity, *said, asked=ended.asked)
        case Outcome.DISPLACED:
            return no_frame(runtime, "displaced", identity)
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
