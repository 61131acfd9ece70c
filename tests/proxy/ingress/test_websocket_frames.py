"""Frames to a WebSocket client, pure: what came together, in order, and how its turn ended."""

import msgspec
import pytest

from lifecycle import Cause, Limits
from proxy.config.settings import ClientSettings
from proxy.ingress.refusals import Audience, figures
from proxy.ingress.websocket_frames import FILLER, frames_of
from proxy.journal.record import Transport
from proxy.refusal import Reason, Refused
from proxy.responses.events import UNKNOWN_USAGE
from proxy.responses.sse import Batch, Event, event_from
from proxy.turn.ended import (
    Broken,
    Cancelled,
    Cut,
    Delivered,
    Displaced,
    Ended,
    Finished,
    Head,
    Rejected,
)
from proxy.turn.outbox import Taken
from proxy.upstream.interface import Failure
from tests.testkit.runtime import WALL

CREATED = event_from(b'{"type":"response.created"}', "response.created")
DELTA = event_from(b'{"type":"response.output_text.delta","delta":"\xc3\xa9"}', "x")
COMPLETED = event_from(b'{"type":"response.completed"}', "response.completed")
TELLS_NOTHING: list[Ended] = [Delivered(), *(Cancelled(cause=cause) for cause in Cause)]
FIGURES = figures(Limits(), ClientSettings())


def frames(
    *events: Event, head: Head | None = None, ended: Ended | None = None, codex: bool = False
) -> list[bytes]:
    taken = Taken(
        head=head,
        batches=[Batch(x.raw, () if x.data is None else (x.data,)) for x in events],
        ended=ended,
    )
    audience = Audience(codex=codex, transport=Transport.WEBSOCKET)
    return frames_of(taken, audience, FIGURES, WALL)


def finished(final: Event) -> Finished:
    return Finished(final=final, usage=UNKNOWN_USAGE)


def test_data_leaves_as_it_came_and_in_order() -> None:
    ended = finished(COMPLETED)

    assert frames(CREATED, DELTA, ended=ended) == [CREATED.data, DELTA.data, COMPLETED.data]


def test_without_events_there_are_no_frames() -> None:
    assert frames() == []


def test_comments_and_empty_data_make_no_frame() -> None:
    assert frames(Event(b": hi\n\n", None, ""), Event(b"data:\n\n", b"", "")) == []


def test_a_frame_is_valid_text_whatever_the_upstream_wrote() -> None:
    assert frames(event_from(b"caf\xe9 \xc3\xa9", "")) == ["caf\ufffd é".encode()]


def test_headers_become_events_before_the_first() -> None:
    head = Head(
        status=200,
        headers=[(b"x-codex-turn-state", b"state"), (b"x-codex-primary-used-percent", b"5")],
    )
    metadata, limits, event = frames(CREATED, head=head)

    assert msgspec.json.decode(metadata)["type"] == "response.metadata"
    assert msgspec.json.decode(limits)["type"] == "codex.rate_limits"
    assert event == CREATED.data


def test_headers_that_mean_nothing_on_a_websocket_make_no_frame() -> None:
    head = Head(status=200, headers=[(b"content-type", b"text/event-stream")])

    assert frames(CREATED, head=head) == [CREATED.data]


def test_a_terminal_event_without_data_makes_a_frame() -> None:
    ended = finished(Event(b"", None, "response.completed"))

    assert frames(ended=ended) == [b""]


FAILURE = Failure(status=504, code="upstream_timeout", message="the reason", retriable=False)


@pytest.mark.parametrize(
    ("ended", "codex", "shape"),
    [
        (Refused(reason=Reason.BAD_REQUEST, detail="the reason"), False, (400, "bad_request")),
        (Refused(reason=Reason.TOO_LARGE), True, (400, "invalid_prompt")),
        (Displaced(), True, (400, "invalid_prompt")),
        (FAILURE, True, (504, "upstream_timeout")),
        (Cut(how="the reason"), True, (502, "upstream_cut")),
        (Broken(), True, (500, "internal_error")),
        (Rejected(status=402, headers=[], body=b'{"error":{"code":"x"}}'), True, (402, "x")),
        (finished(event_from(b'{"type":"error","error":{"code":"x"}}', "error")), True, (502, "x")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_end_that_a_client_is_told_of_is_one_frame(
    ended: Ended, codex: bool, shape: tuple[int, str]
) -> None:
    (frame,) = frames(ended=ended, codex=codex)
    said = msgspec.json.decode(frame)

    assert (said["type"], said["status"], said["error"]["code"]) == ("error", *shape)
    assert "the reason" not in repr(ended) or "the reason" in said["error"]["message"]


@pytest.mark.parametrize("ended", TELLS_NOTHING, ids=repr)
def test_an_end_that_the_client_caused_makes_no_frame(ended: Ended) -> None:
    assert frames(CREATED, ended=ended) == [CREATED.data]


def test_a_filler_is_not_a_terminal_event() -> None:
    assert msgspec.json.decode(FILLER) == {"type": "keepalive"}
