"""Transcript, pure: what one WebSocket has said and heard, so that increments become whole inputs.

Theory of operation ------------------- Codex sends a whole input once and afterwards only new items
beside the `previous_response_id`. An HTTP upstream needs everything each time. So the socket keeps
the bytes of the input and of the last response's output items, in order, each as the inside of a
JSON array, and the next POST joins them. Only the new items are parsed, and only for the ids that
pair a tool call with its output: an upstream refuses an input with a call that has no output, so a
call that was never answered (its turn was interrupted) is left out. Its output can only come in the
very next increment, so the decision is made there and never revised.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from proxy.responses.rawjson import UNREADABLE

# The kinds of item that Codex pairs by `call_id`, and the outputs that answer them.
_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "tool_search_call", "local_shell_call"}
)
_OUTPUTS: Final = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "tool_search_output",
        "local_shell_call_output",
    }
)


class _Item(msgspec.Struct):
    type: str = ""
    call_id: str | None = None
    execution: str | None = None


_items: Final = msgspec.json.Decoder(list[msgspec.Raw])
_item: Final = msgspec.json.Decoder(_Item)


@dataclass(frozen=True, slots=True)
class OutputItem:
    """An output item, and the id of the call if it is one that the client has to answer."""

    raw: bytes
    call_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Everything up to and including the response `response_id`."""

    response_id: str
    items: tuple[bytes, ...]
    output: tuple[OutputItem, ...] = ()

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(map(len, self.items)) + sum(len(item.raw) for item in self.output)


def continued(before: Transcript | None, new: bytes) -> tuple[bytes, ...]:
    """Return the whole input, in parts, of a turn that says `new` after `before`."""
    if before is None:
        return (new,) if new else ()
    waiting = any(item.call_id for item in before.output)
    answered = _answered(new) if waiting else frozenset()
    kept = (item.raw for item in before.output if item.call_id is None or item.call_id in answered)
    return (*before.items, *kept, new) if new else (*before.items, *kept)


def output_item_of(item: bytes) -> OutputItem:
    """Return the output item of a `response.output_item.done`."""
    try:
        seen = _item.decode(item)
    except UNREADABLE:
        return OutputItem(item, None)
    # A tool search that the server executes has no output item; only a client's is answered.
    ours = seen.type in _CALLS and seen.execution != "server"
    return OutputItem(item, seen.call_id if ours else None)


def _answered(new: bytes) -> frozenset[str]:
    """Return the ids of the calls whose outputs are among the new items."""
    found: set[str] = set()
    for raw in _decoded(new):
        try:
            seen = _item.decode(raw)
        except UNREADABLE:
            continue
        if seen.type in _OUTPUTS and seen.call_id is not None:
            found.add(seen.call_id)
    return frozenset(found)


def _decoded(new: bytes) -> Sequence[msgspec.Raw]:
    return _items.decode(b"[" + new + b"]")
