"""Encrypted reasoning, pure: a request without the items that another account cannot read.

Encrypted items can be read only by the account that made them. The summary of a compaction is
encrypted too, but it is all that is left of what came before it, so it is kept, even though the
upstream may then answer with an error.
"""

import hashlib
from typing import Final

import msgspec

from proxy.responses.rawjson import UNREADABLE, members

_MARK: Final = b'"encrypted_content"'


class _Item(msgspec.Struct):
    type: str = ""
    encrypted_content: str | None = None


_item: Final = msgspec.json.Decoder(_Item)
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])


def without_reasoning(body: bytes, last: bytes | None = None) -> tuple[bytes, bytes | None]:
    """Return the body without encrypted reasoning items, and the mark of the last one left out.

    All of them are left out, or those up to the one with the mark `last`. A body that cannot be
    read, or has no such item, is returned as it is, with None.
    """
    if _MARK not in body:
        return body, None
    try:
        fields = members(body)
        items = [bytes(item) for item in _items.decode(fields["input"])]
    except (KeyError, *UNREADABLE):
        return body, None
    marks = [_mark_of(item) for item in items]
    ends = [at for at, mark in enumerate(marks) if mark is not None and last in (None, mark)]
    if not ends:
        return body, None
    kept = [item for at, item in enumerate(items) if marks[at] is None or at > ends[-1]]
    fields["input"] = msgspec.Raw(b"[" + b",".join(kept) + b"]")
    return msgspec.json.encode(fields), marks[ends[-1]]


def _mark_of(raw: bytes) -> bytes | None:
    """Return what identifies an encrypted reasoning item however its JSON is written, else None."""
    if _MARK not in raw:
        return None
    try:
        item = _item.decode(raw)
    except UNREADABLE:
        return None
    if item.type != "reasoning" or item.encrypted_content is None:
        return None
    return hashlib.blake2b(item.encrypted_content.encode(), digest_size=16).digest()
