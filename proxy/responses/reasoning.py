"""Sanitise, pure: a request without the encrypted reasoning that another account cannot read.

Encrypted items are readable where they were made. A summary of a compaction is encrypted too, but
is the only trace of what came before it, so it is never left out: rather the upstream's own error.
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
    """The body without its encrypted reasoning items: all, or those up to the one marked `last`;
    and the mark of the last that was left out, None if there was none. What cannot be read, and
    where there is no item with that mark, stays as it is."""
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
    """Of an encrypted reasoning item, however it is written; None for anything else."""
    if _MARK not in raw:
        return None
    try:
        item = _item.decode(raw)
    except UNREADABLE:
        return None
    if item.type != "reasoning" or item.encrypted_content is None:
        return None
    return hashlib.blake2b(item.encrypted_content.encode(), digest_size=16).digest()
