"""Sub-agents at once, where their conversation's budget has no turns for all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from tests.codex.checks import assert_clean, tool_outputs
from tests.codex.cli import Codex, with_provider
from tests.codex.crowd import ENDED, SPAWNS_MANY, Crowd, heard, spawn
from tests.codex.events import function_call, message, response
from tests.codex.tap import Tap
from tests.codex.turnlane import Turnlane, wait_idle
from tests.codex.upstream import Request, Step, TurnUpstream

pytestmark = pytest.mark.codex

CHILDREN = 12
AT_ONCE = 8
WORKERS = 7
HOLDS = "[workflow]\nhold_seconds = 60\n"
OFTEN = "[client]\nfiller_seconds = 1\n"
"""Often enough for a waiting turn to be sent a filler in a short test too."""


@pytest.fixture
def codex(binary: Path, tmp_path: Path, tap: Tap, websockets: bool) -> Codex:
    return with_provider(
        binary, tmp_path / "client", tap.url, websockets=websockets, settings=SPAWNS_MANY
    )


def is_child(request: Request) -> bool:
    return "x-codex-parent-thread-id" in request.headers


def last_of_root(upstream: TurnUpstream) -> Request:
    return [request for request in upstream.requests.entries if not is_child(request)][-1]


def refused_threads(tap: Tap) -> list[str]:
    """The threads on whose sockets an error frame arrived, once for each."""
    asked = {
        frame.socket: frame.body["client_metadata"]["thread_id"]
        for frame in tap.frames.entries
        if frame.by_client
    }
    return [
        asked[frame.socket]
        for frame in tap.frames.entries
        if not frame.by_client and frame.body["type"] == "error"
    ]


@pytest.mark.parametrize(
    ("seconds", "settings"), [(2, HOLDS), (6, HOLDS + OFTEN)], ids=["short", "with fillers"]
)
async def test_where_workers_may_wait_all_finish_and_none_is_refused(
    codex: Codex,
    upstream: TurnUpstream,
    turnlane: Turnlane,
    tap: Tap,
    websockets: bool,
    seconds: int,
    settings: str,
) -> None:
    crowd = upstream.script = Crowd(CHILDREN, seconds)
    run = await codex.ask("spawn many")

    assert (run.code, run.answers) == (0, [ENDED]), run.everything
    reports = heard(last_of_root(upstream))
    assert {name: f"report of {name}" in said for name, said in reports.items()} == dict.fromkeys(
        crowd.names, True
    )
    assert sum(map(is_child, upstream.requests.entries)) == CHILDREN
    assert len(tap.websockets) == (1 + CHILDREN if websockets else 0)
    if websockets:
        assert len(tap.links) == 1 + CHILDREN
        assert tap.received("error") == []
        fillers = len(tap.received("keepalive"))
        assert fillers >= (CHILDREN if OFTEN in settings else 0)
    assert "Reconnecting" not in run.everything
    status = await assert_clean(turnlane, run.everything)
    assert WORKERS <= status["turns"]["peak"] <= AT_ONCE


async def test_where_workers_may_not_wait_they_come_back_and_the_parent_never_has_to(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, tap: Tap, websockets: bool
) -> None:
    crowd = upstream.script = Crowd(CHILDREN, 2)
    run = await codex.ask("spawn many")

    assert (run.code, run.answers) == (0, [ENDED]), run.everything
    assert "Falling back" not in run.everything
    assert heard(last_of_root(upstream)).keys() == set(crowd.names)
    assert sum(map(is_child, upstream.requests.entries)) == CHILDREN
    status = await wait_idle(turnlane)
    assert WORKERS <= status["turns"]["peak"] <= AT_ONCE
    refused = status["workflows"]["refused"]
    assert status["refusals"] == {"workflow_concurrency_exhausted": refused}
    assert refused >= CHILDREN - WORKERS
    assert (status["workflows"]["tracked"], status["workflows"]["active"]) == (1, 0)
    if websockets:
        told = refused_threads(tap)
        assert len(told) == refused
        assert last_of_root(upstream).thread not in told
        assert {error["headers"]["retry-after"] for error in tap.received("error")} == {"5"}
        assert len(tap.websockets) == len(tap.links) == 1 + CHILDREN + refused


@pytest.mark.parametrize("settings", ["[workflow]\nchildren = 2\n"], ids=["two children"])
async def test_a_parent_is_told_in_our_words_that_it_has_had_its_children(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane
) -> None:
    upstream.script = Crowd(3, 0.5)
    run = await codex.ask("spawn three")

    assert (run.code, run.answers) == (0, [ENDED]), run.everything
    said = heard(last_of_root(upstream)).values()
    (refused,) = [words for words in said if "report of" not in words]
    assert len(said) == 3
    assert "Agent errored: turnlane refused this locally and asked no provider" in refused
    assert "this task has had 2 different sub-agents in 10 min" in refused
    assert sum(map(is_child, upstream.requests.entries)) == 2
    status = await wait_idle(turnlane)
    assert status["refusals"] == {"workflow_children_exhausted": 1}


class Guarded:
    """A script: while a child runs, the root makes a call that an automatic review must allow."""

    def __init__(self) -> None:
        self._running = trio.Event()
        self._reviewed = trio.Event()

    def __call__(self, request: Request) -> list[Step]:
        name = request.response_id
        match request.headers.get("x-openai-subagent"):
            case "guardian":
                verdict = {"risk_level": "low", "user_authorization": "high", "outcome": "allow"}
                return [*response(name, message(json.dumps(verdict)))]
            case "collab_spawn":
                begun, *rest = response(name, message("report of child_0"))
                self._running.set()
                return [begun, self._reviewed, *rest]
            case _:
                return self._root(request)

    def _root(self, request: Request) -> list[Step]:
        name = request.response_id
        if not request.says("spawn_child_0"):
            return [*response(name, spawn("child_0"))]
        if "call_0" in tool_outputs(request):
            self._reviewed.set()
            return [*response(name, message("it was allowed"))]
        arguments = {"cmd": "echo allowed", "sandbox_permissions": "require_escalated"}
        call = function_call("call_0", "exec_command", {**arguments, "justification": "try"})
        return [self._running, *response(name, call)]


@pytest.mark.parametrize("settings", ["[workflow]\nturns = 2\n"], ids=["one worker"])
async def test_a_review_that_the_user_waits_for_is_not_a_worker(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane
) -> None:
    upstream.script = Guarded()
    run = await codex.exec("--approve-for-me", "--skip-git-repo-check", "--json", "guarded")

    assert (run.code, run.answers) == (0, ["it was allowed"]), run.everything
    outputs = tool_outputs(last_of_root(upstream))
    assert "allowed" in outputs["call_0"]
    kinds = [r.headers.get("x-openai-subagent") for r in upstream.requests.entries]
    assert kinds.count("guardian") == 1
    status = await assert_clean(turnlane, run.everything)
    assert status["turns"]["peak"] == 2
