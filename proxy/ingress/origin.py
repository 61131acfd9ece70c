"""Who may speak to a local port at all, pure: the Host and Origin of a request.

A browser page must not spend a token. A page of another site sends its Origin, and a page whose
name was rebound to this machine sends a Host that is not ours.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from proxy.config import Server
from proxy.headers import find


def foreign(headers: Iterable[tuple[bytes, bytes]], server: Server) -> str | None:
    """Why a request is refused before anything else, or None."""
    pairs = list(headers)
    host = find(pairs, b"host") or ""
    name = _host_name(host)
    if not (_is_loopback(name) or name in server.hosts or name == server.host):
        return f"the Host {host[:100]!r} is neither loopback nor one of server.hosts"
    origin = find(pairs, b"origin")
    if origin is None or origin in server.origins:
        return None
    parts = urlsplit(origin) if origin.isascii() else None
    if parts is not None and parts.scheme in ("http", "https") and parts.netloc == host:
        return None
    return f"the Origin {origin[:100]!r} is not one of server.origins"


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
