"""A conversation that spawns many sub-agents at once, and what became of them."""

from __future__ import annotations

import json

from tests.codex.events import Item, completed, created, function_call, item_done, message, response
from tests.codex.upstream import Request, Step

SPAWNS_MANY = """
[features.multi_agent_v2]
enabled = true
max_concurrent_threads_per_session = 14
"""
ENDED = "the crowd has gone home"


class Crowd:
    """A script: the root spawns all children in one answer and waits until all have reported."""

    def __init__(self, size: int, seconds: float) -> None:
        self.names = [f"child_{number}" for number in range(size)]
        self._seconds = seconds

    def __call__(self, request: Request) -> list[Step]:
        if "x-codex-parent-thread-id" in request.headers:
            return self._child(request)
        return [*response(request.response_id, *self._root(request))]

    def _root(self, request: Request) -> list[Item]:
        if not request.says("spawn_child_0"):
            return [spawn(name) for name in self.names]
        if len(heard(request)) == len(self.names):
            return [message(ENDED)]
        return [function_call(f"wait_{request.number}", "wait_agent", {}, "collaboration")]

    def _child(self, request: Request) -> list[Step]:
        """The stream begins at once and ends late: its head frees nothing."""
        name, report = request.response_id, message(f"report of {agent_name(request)}")
        return [created(name), self._seconds, item_done(report), completed(name, report)]


def spawn(child: str) -> Item:
    arguments = {"task_name": child, "message": f"task of {child}"}
    return function_call(f"spawn_{child}", "spawn_agent", arguments, "collaboration")


def agent_name(request: Request) -> str:
    path: str = json.loads(request.headers["x-codex-turn-metadata"])["agent_name"]
    return path.rpartition("/")[2]


def heard(request: Request) -> dict[str, str]:
    """What each sub-agent came to in the end, as the root was told it."""
    told = [item for item in request.input if item["type"] == "agent_message"]
    return {item["author"].rpartition("/")[2]: json.dumps(item["content"]) for item in told}
