"""PURE the requests that Codex sends: headers, bodies, and the metadata that names a turn."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from harness.recall.calls import Item, message
from harness.recall.faults import Step
from harness.recall.plan import SECRET_DIGITS, SECRET_PREFIX, ScriptedExchange, SessionPlan

HeaderPairs = tuple[tuple[str, str], ...]

SECRET = re.compile(rf"{SECRET_PREFIX}[0-9a-f]{{{SECRET_DIGITS}}}".encode())
TERMINALS = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})

_TOOL: Final = {
    "type": "function",
    "strict": False,
    "parameters": {"type": "object", "properties": {}},
}
SHAPE: Final[Mapping[str, Any]] = {
    "model": "gpt-5.5",
    "stream": True,
    "tools": [
        _TOOL | {"name": f"tool_{n}", "description": "What this tool does. " * 40}
        for n in range(10)
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "text": {"verbosity": "low"},
}
"""The keys that every request repeats, and that must reach the upstream unchanged."""


def instructions() -> Item:
    """Return the base instructions: as large as a real client's, and the same in every session."""
    return message("developer", "You are a coding agent. " * 800, "msg_instructions")


def turn_metadata(session: SessionPlan, exchange: ScriptedExchange | None) -> str:
    """`x-codex-turn-metadata`. None: a prewarm, as a WebSocket handshake says it."""
    named: dict[str, object] = {
        "session_id": session.session_id,
        "thread_id": session.thread_id,
        "turn_id": "",
        "request_kind": "prewarm",
    }
    if session.parent_id is not None:
        named |= {"parent_thread_id": session.parent_id, "subagent_kind": "thread_spawn"}
    if exchange is not None:
        turn_id = session.turns[exchange.turn].turn_id
        named |= {"turn_id": turn_id, "root_turn_id": turn_id, "request_kind": "turn"}
        named |= {"recall_step": exchange.step, "recall_attempt": exchange.attempt}
        named |= {"recall_turn": exchange.turn}
    return msgspec.json.encode(named).decode()


def exchange_named(metadata: str) -> ScriptedExchange | None:
    """Return the exchange that turn metadata names, or None."""
    try:
        named = msgspec.json.decode(metadata)
        return ScriptedExchange(
            thread_id=named["thread_id"],
            turn=named["recall_turn"],
            step=Step(named["recall_step"]),
            attempt=named["recall_attempt"],
        )
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None


def kinship(session: SessionPlan) -> HeaderPairs:
    """Return what identifies a sub-agent, in headers and, with the same names, in frames."""
    if session.parent_id is None:
        return ()
    return (
        ("x-codex-parent-thread-id", session.parent_id),
        ("x-openai-subagent", "collab_spawn"),
    )


def headers(session: SessionPlan, exchange: ScriptedExchange | None) -> HeaderPairs:
    """Return the headers of a request, or of a handshake (then `exchange` is None)."""
    transport: HeaderPairs = (
        (("openai-beta", "responses_websockets=2026-02-06"),)
        if exchange is None
        else (("accept", "text/event-stream"), ("content-type", "application/json"))
    )
    return (
        ("authorization", f"Bearer {session.secret}"),
        ("session-id", session.session_id),
        ("thread-id", session.thread_id),
        ("x-client-request-id", session.thread_id),
        ("x-codex-window-id", f"{session.thread_id}:0"),
        ("x-codex-turn-metadata", turn_metadata(session, exchange)),
        ("x-codex-beta-features", "remote_compaction_v2"),
        ("originator", "codex_exec"),
        ("user-agent", "codex_exec/0.171.0 (turnlane recall)"),
        *kinship(session),
        *transport,
    )


def body(
    session: SessionPlan, exchange: ScriptedExchange | None, items: Iterable[Item]
) -> dict[str, Any]:
    """Return the body of a POST; a frame has these keys too."""
    turn_id = "" if exchange is None else session.turns[exchange.turn].turn_id
    metadata = {
        "session_id": session.session_id,
        "thread_id": session.thread_id,
        "turn_id": turn_id,
        "x-codex-window-id": f"{session.thread_id}:0",
        "x-codex-turn-metadata": turn_metadata(session, exchange),
        **dict(kinship(session)),
    }
    mine = {"prompt_cache_key": session.session_id, "client_metadata": metadata}
    return {**SHAPE, "input": list(items), **mine}


def prewarm_frame(session: SessionPlan) -> dict[str, Any]:
    prewarm = body(session, None, [instructions()])
    return {"type": "response.create", "generate": False, **prewarm}


def create_frame(
    session: SessionPlan, exchange: ScriptedExchange, items: Iterable[Item], previous: str | None
) -> dict[str, Any]:
    """Return one WebSocket request: only what is new when `previous` names the last response."""
    frame = {"type": "response.create", **body(session, exchange, items)}
    return frame if previous is None else {"previous_response_id": previous, **frame}


def interrupt_frame(response_id: str) -> dict[str, Any]:
    mode = "discard_partial_items"
    return {"type": "response.interrupt", "response_id": response_id, "mode": mode}


def foreign_secrets(data: bytes, own: str) -> frozenset[str]:
    """Return the secrets of other sessions that these bytes contain."""
    return frozenset(found.decode() for found in SECRET.findall(data)) - {own}
