"""Whether what listens on a port is a turnlane, and where the turnlane of a home listens."""

from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from proxy.config.settings import ServerSettings
from proxy.control.client import ask_if_running
from proxy.control.commands import ShowUrl

HOST: Final = "127.0.0.1"
TIMEOUT_SECONDS: Final = 3.0
_REACHED_AT: Final = MappingProxyType({"0.0.0.0": HOST, "::": "::1"})
"""Where to ask a server that listens on every address."""


class Answerer(StrEnum):
    """The kind of server that answers at an address."""

    TURNLANE = "turnlane"
    OTHER = "other"
    NOBODY = "nobody"


def base_url(port: int) -> str:
    return f"http://{HOST}:{port}"


def problem_with(url: str) -> str | None:
    """Return why no turnlane answers at this base URL; None when one does."""
    split = urlsplit(url)
    return problem_at(split.port or 80, split.hostname or HOST)


def problem_at(port: int, host: str = HOST) -> str | None:
    """Return why Codex may not be pointed at a port; None when a turnlane answers there."""
    return _asked(port, host)[1]


def answerer_at(url: str) -> Answerer:
    """Return who answers at a base URL of this machine."""
    split = urlsplit(url)
    return _asked(split.port or 80, split.hostname or HOST)[0]


def _asked(port: int, host: str) -> tuple[Answerer, str | None]:
    from http.client import HTTPException  # slow to import, as is what speaks HTTP here

    from proxy.upstream.blocking import get

    host = _REACHED_AT.get(host, host)
    named = f"[{host}]" if ":" in host else host
    try:
        body = get(f"http://{named}:{port}/healthz", TIMEOUT_SECONDS, direct=True).body
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except (OSError, HTTPException) as error:
        problem = f"no turnlane answers on {host}:{port} ({error}); start one with `turnlane serve`"
        talks = isinstance(error, HTTPException)
        return Answerer.OTHER if talks else Answerer.NOBODY, problem
    except msgspec.DecodeError:
        answer = {}
    if answer.get("service") != "turnlane":
        return Answerer.OTHER, f"another program answers on {host}:{port}, not a turnlane"
    return Answerer.TURNLANE, None


def running_url(home: Path) -> str | None:
    """Return the base URL of the turnlane that holds `home`; None if none runs or says it."""
    answer = ask_if_running(home, ShowUrl())
    return None if answer is None else answer.url


def port_of(url: str | None) -> int:
    """The port of a base URL, or the one where turnlane listens by default."""
    return ServerSettings().port if url is None else int(url.rpartition(":")[2])
