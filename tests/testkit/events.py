"""Events as an upstream streams them, and frames as a client sends them."""

import json
from collections.abc import Sequence
from typing import Any

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 80},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 107,
}


SAID = {"type": "message", "role": "assistant", "content": "hello"}
"""An output item."""


def sse(event: dict[str, Any]) -> bytes:
    """One event, in the form in which upstreams write it."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def created(name: str = "resp_1") -> bytes:
    response = {"id": name, "object": "response", "status": "in_progress", "output": []}
    return sse({"type": "response.created", "response": response})


def delta(text: str = "hello") -> bytes:
    return sse({"type": "response.output_text.delta", "delta": text})


def item_done(item: dict[str, Any]) -> bytes:
    return sse({"type": "response.output_item.done", "output_index": 0, "item": item})


def completed(name: str = "resp_1", usage: dict[str, Any] | None = None) -> bytes:
    response: dict[str, Any] = {"id": name, "object": "response", "status": "completed"}
    response["usage"] = USAGE if usage is None else usage
    return sse({"type": "response.completed", "response": response})


def failed(name: str = "resp_1", code: str = "server_error") -> bytes:
    error = {"code": code, "message": "the model tripped"}
    response = {"id": name, "status": "failed", "error": error}
    return sse({"type": "response.failed", "response": response})


def incomplete(name: str = "resp_1") -> bytes:
    details = {"reason": "max_output_tokens"}
    response = {"id": name, "status": "incomplete", "incomplete_details": details}
    return sse({"type": "response.incomplete", "response": response})


def message(text: str) -> dict[str, Any]:
    """What a user says, as an input item."""
    return {"type": "message", "role": "user", "content": text}


def call(call_id: str, name: str = "shell") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def call_output(call_id: str, output: str = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def post(**keys: Any) -> bytes:
    """The body of a `POST /v1/responses`."""
    return json.dumps(
        {"model": "gpt-5.5", "stream": True, "input": [message("hi")]} | keys
    ).encode()


def create(
    *items: dict[str, Any],
    previous: str | None = None,
    thread: str | None = "thread",
    session: str | None = "session",
    parent: str | None = None,
    metadata: dict[str, str] | None = None,
    **keys: Any,
) -> str:
    """A `response.create` frame."""
    named = {"thread_id": thread, "session_id": session, "x-codex-parent-thread-id": parent}
    given = {key: value for key, value in named.items() if value is not None} | (metadata or {})
    frame: dict[str, Any] = {"type": "response.create", "model": "gpt-5.5", "stream": True}
    if previous is not None:
        frame["previous_response_id"] = previous
    said: Sequence[dict[str, Any]] = items or (message("hi"),)
    return json.dumps(frame | {"input": list(said), "client_metadata": given} | keys)


def interrupt(name: str | None = None) -> str:
    named = {} if name is None else {"response_id": name}
    return json.dumps({"type": "response.interrupt", "mode": "discard_partial_items"} | named)
