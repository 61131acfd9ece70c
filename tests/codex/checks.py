"""What must be true at the end of every test, and how a whole input is known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.codex.events import Item
from tests.codex.tap import Frame, Tap
from tests.codex.turnlane import Status, Turnlane, wait_idle
from tests.codex.upstream import Request


async def assert_clean(turnlane: Turnlane, *outputs: str) -> Status:
    """Nothing held, nothing refused, and no client was pushed off its transport."""
    for output in outputs:
        assert "Falling back" not in output
        assert "server_busy" not in output
    status = await wait_idle(turnlane)
    assert_nothing_refused(status)
    return status


def assert_nothing_refused(status: Status) -> None:
    assert not any(status["refusals"].values()), status["refusals"]
    assert (status["lanes"]["refused"], status["turns"]["refused"]) == (0, 0), status


def assert_growing(requests: Sequence[Request]) -> None:
    """Each request repeats the whole input of the one before it."""
    for earlier, later in pairwise(requests):
        assert later.input[: len(earlier.input)] == earlier.input


def tool_outputs(request: Request) -> dict[str, str]:
    """What each tool call in the input was answered, by call id."""
    return {
        item["call_id"]: str(item["output"])
        for item in request.input
        if item["type"] in {"function_call_output", "custom_tool_call_output"}
    }


def spoken_inputs(tap: Tap) -> list[list[Item]]:
    """The whole input behind each frame that asked for an answer, told from the wire alone.

    A frame names the response it continues and holds only what is new; the rest is that
    response's own input and the items it finished.
    """
    told: list[list[Item]] = []
    for link in tap.websockets:
        frames = [frame for frame in tap.frames.entries if frame.socket == link.number]
        told += _spoken_on_one_socket(frames)
    return told


def _spoken_on_one_socket(frames: Sequence[Frame]) -> list[list[Item]]:
    told: list[list[Item]] = []
    conversations: dict[str, list[Item]] = {}
    current: list[Item] = []
    for frame in frames:
        body: dict[str, Any] = frame.body
        if frame.by_client and body["type"] == "response.create":
            previous = body.get("previous_response_id")
            current = [*(conversations[previous] if previous else []), *body["input"]]
            if body.get("generate") is not False:
                told.append(list(current))
        elif body["type"] == "response.output_item.done":
            current.append(body["item"])
        elif body["type"] in {"response.completed", "response.incomplete"}:
            conversations[body["response"]["id"]] = list(current)
    return told
