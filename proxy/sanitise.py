"""Sanitise, pure: a request without the encrypted reasoning that another account cannot read.

Encrypted items are readable where they were made. A summary of a compaction is encrypted too, but
is the only trace of what came before it, so it is never left out: rather the upstream's own error.
"""

from typing import Final

import msgspec

from proxy.shallow import UNREADABLE, members

_MARK: Final = b'"encrypted_content"'


class _Item(msgspec.Struct):
    type: str = ""
    encrypted_content: str | None = None


_item: Final = msgspec.json.Decoder(_Item)
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])


def without_reasoning(body: bytes, most: int | None = None) -> tuple[bytes, int]:
    """The body without its first `most` encrypted reasoning items (all, if None), and how many
    were left out. What cannot be read stays as it is."""
    if _MARK not in body:
        return body, 0
    try:
        fields = members(body)
        items = _items.decode(fields["input"])
    except (KeyError, *UNREADABLE):
        return body, 0
    kept: list[bytes] = []
    dropped = 0
    for item in items:
        raw = bytes(item)
        if (most is None or dropped < most) and _is_encrypted_reasoning(raw):
            dropped += 1
        else:
            kept.append(raw)
    if not dropped:
        return body, 0
    fields["input"] = msgspec.Raw(b"[" + b",".join(kept) + b"]")
    return msgspec.json.encode(fields), dropped


def _is_encrypted_reasoning(raw: bytes) -> bool:
    if _MARK not in raw:
        return False
    try:
        item = _item.decode(raw)
    except UNREADABLE:
        return False
    return item.type == "reasoning" and item.encrypted_content is not None
