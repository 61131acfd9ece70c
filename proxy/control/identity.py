"""Probe: whether what listens on a port is a turnlane, and where the one of a home listens."""

import http.client
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from proxy.config.settings import ServerSettings
from proxy.control.client import LOOK_SECONDS, NotRunning, ask
from proxy.errors import ConfigError

HOST: Final = "127.0.0.1"
PROBE_SECONDS: Final = 3.0
_MOST_BYTES: Final = 65536
_REACHED_AT: Final = MappingProxyType({"0.0.0.0": HOST, "::": "::1"})
"""Where one that listens on every address is asked."""


class Answerer(StrEnum):
    """Who answers at an address."""

    TURNLANE = "turnlane"
    OTHER = "other"
    NOBODY = "nobody"


def base_url(port: int) -> str:
    return f"http://{HOST}:{port}"


def problem_with(url: str) -> str | None:
    """Why what has this base URL is no turnlane; None when one answers there."""
    split = urlsplit(url)
    return problem_at(split.port or 80, split.hostname or HOST)


def problem_at(port: int, host: str = HOST) -> str | None:
    """Why Codex may not be pointed at a port; None when a turnlane answers there."""
    return _asked(port, host)[1]


def answerer_at(url: str) -> Answerer:
    """Who answers at a base URL of this machine."""
    split = urlsplit(url)
    return _asked(split.port or 80, split.hostname or HOST)[0]


def _asked(port: int, host: str) -> tuple[Answerer, str | None]:
    host = _REACHED_AT.get(host, host)
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", "/healthz")
        answer = msgspec.json.decode(
            connection.getresponse().read(_MOST_BYTES), type=dict[str, Any]
        )
    except (OSError, http.client.HTTPException) as error:
        problem = f"no turnlane answers on {host}:{port} ({error}); start it with `turnlane serve`"
        talks = isinstance(error, http.client.HTTPException)
        return Answerer.OTHER if talks else Answerer.NOBODY, problem
    except msgspec.DecodeError:
        answer = {}
    finally:
        connection.close()
    if answer.get("service") != "turnlane":
        return Answerer.OTHER, f"what answers on {host}:{port} is no turnlane"
    return Answerer.TURNLANE, None


def running_url(home: Path) -> str | None:
    """The base URL of the turnlane that holds `home`; None when none runs or it does not say."""
    try:
        url = ask(home, {"command": "url"}, LOOK_SECONDS).get("url")
    except (NotRunning, ConfigError):
        return None
    return url if isinstance(url, str) else None


def port_of(url: str | None) -> int:
    """The port of a base URL, or the one where turnlane listens by default."""
    return ServerSettings().port if url is None else int(url.rpartition(":")[2])
