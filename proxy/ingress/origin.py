"""Who may speak to a local port at all, pure: the Host and Origin of a request.

A browser page must not spend a token. A page of another site sends its Origin, and a page whose
name was rebound to this machine sends a Host that is not ours.
"""

from collections.abc import Iterable

from proxy.config.settings import ServerSettings, is_loopback
from proxy.headers import find


def foreign(headers: Iterable[tuple[bytes, bytes]], server: ServerSettings) -> str | None:
    """Why a request is refused before anything else, or None."""
    pairs = list(headers)
    host = find(pairs, b"host") or ""
    name = _host_name(host)
    known = {known.lower() for known in (*server.hosts, server.host)}
    if not (is_loopback(name) or name in known):
        return f"the Host {host[:100]!r} is neither loopback nor one of server.hosts"
    origin = find(pairs, b"origin")
    own = (f"http://{host}", f"https://{host}")
    if origin is None or origin in own or origin in server.origins:
        return None
    return f"the Origin {origin[:100]!r} is not one of server.origins"


def _host_name(host: str) -> str:
    text = host.lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
