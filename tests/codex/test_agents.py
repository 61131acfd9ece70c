"""Three sub-agents at once under one conversation."""

from __future__ import annotations

import json

import pytest
import trio

from tests.codex.checks import assert_clean, spoken_inputs, tool_outputs
from tests.codex.cli import Codex
from tests.codex.crowd import agent_name, spawn
from tests.codex.events import function_call, message, response, shell
from tests.codex.tap import Tap
from tests.codex.turnlane import Turnlane
from tests.codex.upstream import Request, Step, TurnUpstream

pytestmark = pytest.mark.codex

CHILDREN = ("child_0", "child_1", "child_2")


class Family:
    """A script: the root spawns three children, who meet, work and report."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self._met = trio.Event()

    def __call__(self, request: Request) -> list[Step]:
        if "x-codex-parent-thread-id" in request.headers:
            return self._child(request)
        return [*self._root(request)]

    def _root(self, request: Request) -> list[Step]:
        name = request.response_id
        if not tool_outputs(request):
            return [*response(name, *(spawn(child) for child in CHILDREN))]
        if all(request.says(f"report of {child}") for child in CHILDREN):
            return [*response(name, message("all have reported"))]
        wait = function_call(f"wait_{request.number}", "wait_agent", {}, "collaboration")
        return [*response(name, wait)]

    def _child(self, request: Request) -> list[Step]:
        name, agent = request.response_id, agent_name(request)
        if f"call_{agent}" in tool_outputs(request):
            return [*response(name, message(f"report of {agent}"))]
        self.threads.add(request.thread)
        if len(self.threads) == len(CHILDREN):
            self._met.set()
        return [self._met, *response(name, shell(f"call_{agent}", f"echo {agent}"))]


async def test_three_sub_agents_run_at_once_and_all_report(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, tap: Tap, websockets: bool
) -> None:
    family = Family()
    upstream.script = family
    run = await codex.ask("spawn three", options=("--enable", "multi_agent_v2"))

    assert run.code == 0, run.everything
    assert run.answers[-1] == "all have reported"
    requests = upstream.requests.entries
    (root,) = {request.thread for request in requests} - family.threads
    assert len(family.threads) == len(CHILDREN)
    children = [request for request in requests if request.thread != root]
    assert {request.headers["x-codex-parent-thread-id"] for request in children} == {root}
    assert {request.headers["x-openai-subagent"] for request in children} == {"collab_spawn"}
    assert {request.headers["session-id"] for request in requests} == {root}
    assert {request.body["prompt_cache_key"] for request in requests} == {root}
    assert len(tap.websockets) == (1 + len(CHILDREN) if websockets else 0)
    if websockets:
        seen = [json.dumps(request.input) for request in requests]
        assert sorted(seen) == sorted(json.dumps(told) for told in spoken_inputs(tap))
    status = await assert_clean(turnlane, run.everything)
    assert status["lanes"]["peak"] >= len(CHILDREN)
