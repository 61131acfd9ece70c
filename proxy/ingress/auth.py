"""Who calls: the turnlane key of a request, and the principal that holds it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lifecycle import PrincipalId
from proxy.config.settings import is_loopback
from proxy.headers import find
from proxy.ingress.identity import LOCAL
from proxy.keys import PREFIX
from proxy.responses.forwarding import turnlane_key
from proxy.runtime import Runtime

NOBODY: Final = PrincipalId("-")
"""Stands in the records of those who were not let in."""


@dataclass(frozen=True, slots=True)
class Unauthenticated:
    """Nobody we know: 401."""

    detail: str


def caller(
    runtime: Runtime, headers: Iterable[tuple[bytes, bytes]]
) -> PrincipalId | Unauthenticated:
    """The principal: `local` while there are no keys, else the id of the key presented.

    Looked for in `x-turnlane-key`, then `x-api-key`, then Bearer; the first one found decides.
    """
    if may_call(runtime, LOCAL):
        return LOCAL
    secret = _presented(list(headers))
    if secret is None:
        return Unauthenticated("this turnlane wants a key, in the header x-turnlane-key")
    return runtime.keys.holder(secret) or Unauthenticated("this key is not known, or was revoked")


def may_call(runtime: Runtime, principal: PrincipalId) -> bool:
    """Asked at each frame of an open socket, since keys change live."""
    if principal == LOCAL:  # an address open to others stays shut when its last key is revoked
        return not len(runtime.keys) and is_loopback(runtime.config.server.host)
    return runtime.keys.knows(principal)


def _presented(headers: list[tuple[bytes, bytes]]) -> str | None:
    """Only the first header is ours alone; in the others a provider's key may stand."""
    if (own := find(headers, b"x-turnlane-key")) is not None:
        return own
    api_key = find(headers, b"x-api-key")
    if api_key is not None and api_key.startswith(PREFIX):
        return api_key
    authorization = (find(headers, b"authorization") or "").encode("latin-1")
    key = turnlane_key(authorization)
    return None if key is None else key.decode("latin-1")
