"""Whole turns of `codex exec`: tools, recall, resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codex.checks import assert_clean, assert_growing, spoken_inputs, tool_outputs
from tests.codex.cli import API_KEY, Codex, with_root_key
from tests.codex.events import custom_call, message, response, shell
from tests.codex.tap import Tap
from tests.codex.turnlane import Turnlane
from tests.codex.upstream import Request, Step, TurnUpstream, answer

pytestmark = pytest.mark.codex

SPOKEN, WRITTEN = "heard-4711", "written-0815"
PATCH = f"*** Begin Patch\n*** Add File: note.txt\n+{WRITTEN}\n*** End Patch\n"


def use_tools(request: Request) -> list[Step]:
    """Two parallel calls, then one, then an answer made of what the calls were answered."""
    outputs = tool_outputs(request)
    name = request.response_id
    if not outputs:
        calls = (shell("call_1", f"echo {SPOKEN}"), custom_call("call_2", "apply_patch", PATCH))
        return [*response(name, *calls)]
    if "call_3" not in outputs:
        return [*response(name, shell("call_3", "cat note.txt"))]
    known = [text for text in (SPOKEN, WRITTEN) if any(text in said for said in outputs.values())]
    return [*response(name, message(f"recalled {' '.join(known)}"))]


async def test_a_turn_recalls_what_its_tools_said(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, tap: Tap, websockets: bool
) -> None:
    upstream.script = use_tools
    run = await codex.ask("use your tools")

    assert run.code == 0, run.everything
    assert run.answers == [f"recalled {SPOKEN} {WRITTEN}"]
    assert len(tap.websockets) == (1 if websockets else 0)
    requests = upstream.requests.entries
    assert [len(tool_outputs(request)) for request in requests] == [0, 2, 3]
    assert_growing(requests)
    assert all(request.says("use your tools") for request in requests)
    assert {request.headers["authorization"] for request in requests} == {f"Bearer {API_KEY}"}
    assert {request.thread for request in requests} == {requests[0].headers["session-id"]}
    await assert_clean(turnlane, run.everything)


@pytest.mark.parametrize("websockets", [True], ids=["websocket"])
async def test_the_client_keeps_one_socket_and_sends_what_is_new(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, tap: Tap
) -> None:
    upstream.script = use_tools
    run = await codex.ask("use your tools")

    assert [link.is_websocket for link in tap.links.entries] == [True]
    prewarm, *frames = tap.sent()
    assert prewarm["generate"] is False
    assert "previous_response_id" not in prewarm
    completed = [body["response"]["id"] for body in tap.received("response.completed")]
    assert [frame["previous_response_id"] for frame in frames] == completed[:-1]
    assert [len(frame["input"]) for frame in frames[1:]] == [2, 1]
    assert [request.input for request in upstream.requests.entries] == spoken_inputs(tap)
    assert upstream.requests.entries[0].input[: len(prewarm["input"])] == prewarm["input"]
    assert not any("previous_response_id" in seen.body for seen in upstream.requests.entries)
    await assert_clean(turnlane, run.everything)


async def test_a_resumed_thread_tells_everything_again(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, tap: Tap, websockets: bool
) -> None:
    upstream.script = use_tools
    first = await codex.ask("use your tools")
    upstream.script = answer("resumed")
    second = await codex.exec("resume", "--last", "--skip-git-repo-check", "--json", "go on")

    assert (first.code, second.code) == (0, 0), second.everything
    assert second.answers == ["resumed"]
    *earlier, resumed = upstream.requests.entries
    assert resumed.thread == earlier[0].thread
    assert tool_outputs(resumed) == tool_outputs(earlier[-1])
    for text in ("use your tools", f"recalled {SPOKEN} {WRITTEN}", "go on"):
        assert resumed.says(text)
    assert len(tap.websockets) == (2 if websockets else 0)
    await assert_clean(turnlane, first.everything, second.everything)


async def test_the_root_key_and_an_api_key_login_are_enough(
    binary: Path, tmp_path: Path, tap: Tap, upstream: TurnUpstream, turnlane: Turnlane
) -> None:
    upstream.script = use_tools
    codex = with_root_key(binary, tmp_path / "client", tap.url)
    run = await codex.ask("use your tools")

    assert run.code == 0, run.everything
    assert run.answers == [f"recalled {SPOKEN} {WRITTEN}"]
    assert len(tap.websockets) == 1
    assert [request.input for request in upstream.requests.entries] == spoken_inputs(tap)
    bearers = {request.headers["authorization"] for request in upstream.requests.entries}
    assert bearers == {f"Bearer {API_KEY}"}
    await assert_clean(turnlane, run.everything)
