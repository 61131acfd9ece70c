"""PURE tool calls and their outputs, as items of the Responses wire."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

Item = dict[str, Any]


class CallKind(StrEnum):
    FUNCTION = "function"
    MCP = "mcp"
    CUSTOM = "custom"
    TOOL_SEARCH = "tool_search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call the model makes, and how long the tool takes."""

    kind: CallKind
    call_id: str
    argument: str
    latency_seconds: float


OUTPUT_TYPES: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
}


def call_item(call: Call) -> Item:
    """Return the item with which the model makes this call."""
    arguments = {"query": call.argument}
    item: Item = {"id": f"item_{call.call_id}", "call_id": call.call_id, "status": "completed"}
    match call.kind:
        case CallKind.FUNCTION:
            text = msgspec.json.encode(arguments).decode()
            return item | {"type": "function_call", "name": "exec_command", "arguments": text}
        case CallKind.MCP:
            text = msgspec.json.encode(arguments).decode()
            named = {"namespace": "mcp__files", "name": "read_file", "arguments": text}
            return item | {"type": "function_call"} | named
        case CallKind.CUSTOM:
            patch = {"name": "apply_patch", "input": call.argument}
            return item | {"type": "custom_tool_call"} | patch
        case _:
            wanted = {"execution": "client", "arguments": arguments}
            return item | {"type": "tool_search_call"} | wanted


def output_item(call: Item, secret: str) -> Item:
    """Return the client's answer to a call that it received: it runs whatever arrived."""
    call_id = call["call_id"]
    output: Item = {"type": OUTPUT_TYPES[call["type"]], "call_id": call_id}
    if call["type"] == "tool_search_call":
        found = {"type": "function", "name": f"found_{call_id}", "description": secret}
        return output | {"execution": "client", "status": "completed", "tools": [found]}
    return output | {"output": f"{call_id} ran and saw {secret}"}


def message(role: str, text: str, item_id: str) -> Item:
    """Return a message of one text part; only a model's has an `output_text` part."""
    part = "output_text" if role == "assistant" else "input_text"
    return {
        "type": "message",
        "id": item_id,
        "role": role,
        "content": [{"type": part, "text": text}],
    }
