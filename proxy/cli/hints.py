"""Ready: what a person is told once turnlane serves: how Codex comes to it, if it does not yet."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from proxy.codex.evidence import CONFIG_NAME, codex_home
from proxy.codex.files import Disk
from proxy.codex.saved import read_note
from proxy.codex.toml_edit import KEY
from proxy.control.identity import HOST, base_url
from proxy.errors import RoutingError
from proxy.keys import KeyRing

_HEARD_AT: Final = frozenset({HOST, "0.0.0.0", "::"})
"""Hosts that hear what `turnlane codex on` writes."""


def advice(url: str, home: Path, environment: Mapping[str, str], command: str) -> str:
    """Lines for the one who started it; `command` is how turnlane is called here."""
    config = _short(codex_home(environment) / CONFIG_NAME, environment)
    if len(KeyRing(home)):
        return f"To connect Codex, do what `{command} codex show` says.\n"
    split = urlsplit(url)
    heard = split.hostname in _HEARD_AT and split.port is not None
    reached = base_url(split.port) if heard and split.port is not None else url
    if _connected(home) == f"{reached}/v1":
        return f"Codex is connected: {config} points here. `{command} codex off` puts it back.\n"
    by_hand = f'top of {config}; then start Codex anew:\n\n    {KEY} = "{reached}/v1"\n'
    if heard:
        return f"To connect Codex, `{command} codex on`, or put this line at the {by_hand}"
    return f"To connect Codex, put this line at the {by_hand}"


def called(program: str, found: str | None) -> str:
    """How turnlane is called, by what this process was started as and what the path leads to."""
    if os.path.basename(program) != "turnlane":
        return "turnlane"
    if found is not None and os.path.realpath(found) == os.path.realpath(program):
        return "turnlane"
    return program


def _connected(home: Path) -> str | None:
    """What Codex was pointed at from this home."""
    try:
        note = read_note(Disk(), home)
    except RoutingError:
        return None
    return note.value if note is not None and note.phase == "done" else None


def _short(path: Path, environment: Mapping[str, str]) -> str:
    user = environment.get("HOME")
    if user and path.is_relative_to(user):
        return f"~/{path.relative_to(user)}"
    return str(path)
