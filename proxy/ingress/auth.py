"""Authentication: the turnlane key of a request, and the principal that it belongs to."""

from collections.abc import Iterable
from typing import Final

from lifecycle import PrincipalId
from proxy.headers import find, is_loopback
from proxy.ingress.identity import LOCAL
from proxy.keys import PREFIX, KeyRing, turnlane_key
from proxy.refusal import Reason, Refused

NOBODY: Final = PrincipalId("-")
"""The principal in the record of a request that was not let in."""


def caller(
    keys: KeyRing, host: str, headers: Iterable[tuple[bytes, bytes]]
) -> PrincipalId | Refused:
    """Return the principal: `local` while there are no keys, else the id of the key presented.

    The key is looked for in `x-turnlane-key`, then `x-api-key`, then Authorization; the first one
    found decides. `host` is the address that turnlane listens on.
    """
    if may_call(keys, host, LOCAL):
        return LOCAL
    secret = _presented(list(headers))
    if secret is None:
        return _unauthorized("this turnlane requires a key in the header x-turnlane-key")
    return keys.holder(secret) or _unauthorized("this key is unknown or was revoked")


def may_call(keys: KeyRing, host: str, principal: PrincipalId) -> bool:
    """Return whether a principal may call now. Keys change live, so an open WebSocket checks this
    at every frame."""
    if principal == LOCAL:  # revoking the last key must not open an address that others can reach
        return not len(keys) and is_loopback(host)
    return keys.knows(principal)


def _unauthorized(detail: str) -> Refused:
    return Refused(reason=Reason.UNAUTHORIZED, detail=detail)


def _presented(headers: list[tuple[bytes, bytes]]) -> str | None:
    """Return the key that a request presents. `x-api-key` and Authorization may hold a provider's
    key instead, which is none of our business."""
    if (own := find(headers, b"x-turnlane-key")) is not None:
        return own
    api_key = find(headers, b"x-api-key")
    if api_key is not None and api_key.startswith(PREFIX):
        return api_key
    authorization = (find(headers, b"authorization") or "").encode("latin-1")
    key = turnlane_key(authorization)
    return None if key is None else key.decode("latin-1")
