"""Transcript, pure: what one WebSocket has said and heard, so that increments can be continued.

Theory of operation
-------------------
Codex sends a whole input once and afterwards only new items beside the `previous_response_id`. An
HTTP upstream wants everything each time. So the socket keeps the bytes of the input and of the last
response's output items, in order, each as the inside of a JSON array, and the next POST joins them.
Nothing is parsed but the new items, and those only for the ids that pair a tool call with its
output: a call that was never answered (its turn was interrupted) would make the upstream refuse
the whole input, so it is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from proxy.responses.rawjson import UNREADABLE

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
    """One response's output item, and the call that wants an output, if it is one."""

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
        return sum(map(len, self.items)) + sum(
            len(output_item_of.raw) for output_item_of in self.output
        )


def continued(before: Transcript | None, new: bytes) -> tuple[bytes, ...]:
    """The whole input of a turn that says `new` after `before`."""
    if before is None:
        return (new,) if new else ()
    answered = (
        _answered(new)
        if any(output_item_of.call_id for output_item_of in before.output)
        else frozenset()
    )
    kept = (
        output_item_of.raw
        for output_item_of in before.output
        if output_item_of.call_id is None or output_item_of.call_id in answered
    )
    return (*before.items, *kept, new) if new else (*before.items, *kept)


def output_item_of(item: bytes) -> OutputItem:
    """An output item as it came in `response.output_item.done`."""
    try:
        seen = _item.decode(item)
    except UNREADABLE:
        return OutputItem(item, None)
    # A server-side tool search answers itself; only a client's has an output to wait for.
    ours = seen.type in _CALLS and seen.execution != "server"
    return OutputItem(item, seen.call_id if ours else None)


def _answered(new: bytes) -> frozenset[str]:
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
