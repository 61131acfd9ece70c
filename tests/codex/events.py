"""The events and items a Responses service streams, as JSON objects."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]
Item = dict[str, Any]


def message(text: str) -> Item:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def function_call(
    call_id: str, name: str, arguments: dict[str, Any], namespace: str | None = None
) -> Item:
    item = {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }
    return item if namespace is None else {**item, "namespace": namespace}


def shell(call_id: str, command: str) -> Item:
    return function_call(call_id, "exec_command", {"cmd": command})


def custom_call(call_id: str, name: str, text: str) -> Item:
    return {
        "type": "custom_tool_call",
        "id": f"ctc_{call_id}",
        "call_id": call_id,
        "name": name,
        "input": text,
        "status": "completed",
    }


def created(response_id: str) -> Event:
    response = {"id": response_id, "object": "response", "status": "in_progress", "output": []}
    return {"type": "response.created", "response": response}


def item_added(item: Item, index: int = 0) -> Event:
    started = {**item, "status": "in_progress"}
    if item["type"] == "message":
        started["content"] = []
    return {"type": "response.output_item.added", "output_index": index, "item": started}


def text_delta(text: str, index: int = 0) -> Event:
    place = {"item_id": "msg_0", "output_index": index, "content_index": 0}
    return {"type": "response.output_text.delta", **place, "delta": text}


def item_done(item: Item, index: int = 0) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def completed(response_id: str, *items: Item) -> Event:
    usage = {
        "input_tokens": 100,
        "output_tokens": 5,
        "total_tokens": 105,
        "input_tokens_details": {"cached_tokens": 50},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    response = {"id": response_id, "object": "response", "status": "completed"}
    return {
        "type": "response.completed",
        "response": {**response, "output": list(items), "usage": usage},
    }


def failed(response_id: str, code: str, text: str) -> Event:
    error = {"code": code, "message": text}
    response = {"id": response_id, "object": "response", "status": "failed", "error": error}
    return {"type": "response.failed", "response": response}


def response(response_id: str, *items: Item) -> list[Event]:
    """A whole response that consists of finished items."""
    done = [item_done(item, index) for index, item in enumerate(items)]
    return [created(response_id), *done, completed(response_id, *items)]


def beginning(response_id: str, text: str) -> list[Event]:
    """A response that has begun to speak and has not finished a single item."""
    return [created(response_id), item_added(message(text)), text_delta(text)]


def refusal(code: str, text: str) -> dict[str, Any]:
    """The JSON body of an answer that is no stream."""
    return {"error": {"type": "server_error", "code": code, "message": text}}
