"""What answers at an address of this machine, and where the turnlane of a home listens."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """`problem`: why it is not a turnlane that answers, and what to do; None if it is one."""

    by: Answerer
    problem: str | None = None


def base_url(port: int) -> str:
    return f"http://{HOST}:{port}"


def who_answers(url: str) -> Answered:
    """Ask what answers at a base URL of this machine."""
    from http.client import HTTPException  # slow to import, as is what speaks HTTP here

    from proxy.upstream.blocking import get

    split = urlsplit(url)
    port, host = split.port or 80, split.hostname or HOST
    host = _REACHED_AT.get(host, host)
    named = f"[{host}]" if ":" in host else host
    try:
        body = get(f"http://{named}:{port}/healthz", TIMEOUT_SECONDS, direct=True).body
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except (OSError, HTTPException) as error:
        problem = f"no turnlane answers on {host}:{port} ({error}); start one with `turnlane serve`"
        talks = isinstance(error, HTTPException)
        return Answered(by=Answerer.OTHER if talks else Answerer.NOBODY, problem=problem)
    except msgspec.DecodeError:
        answer = {}
    if answer.get("service") == "turnlane":
        return Answered(by=Answerer.TURNLANE)
    problem = f"another program answers on {host}:{port}, not a turnlane"
    return Answered(by=Answerer.OTHER, problem=problem)


def running_url(home: Path) -> str | None:
    """Return the base URL of the turnlane that holds `home`; None if none runs and tells it."""
    answer = ask_if_running(home, ShowUrl())
    return None if answer is None else answer.url


def port_of(url: str | None) -> int:
    """Return the port of a base URL, or the one where turnlane listens by default."""
    return ServerSettings().port if url is None else int(url.rpartition(":")[2])
