"""The client of the control socket: send one command, return the answer."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from proxy.home.lock import CONTROL_NAME, control_path, if_it_hangs

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 3.0
"""For those who only look: somebody waits for what they see."""
READING = frozenset({"keys.list", "accounts.list", "accounts.preview"})
"""Commands that change nothing, and so need no lock."""
LOOKING = READING | {"status", "past", "url", "workflows"}
"""The same among those that need a turnlane that runs."""

Answer = dict[str, Any]


class NotRunning(Exception):  # noqa: N818
    """No turnlane holds this home."""


class NoAnswer(NotRunning):
    """One does, and has not answered in time. It may carry the command out all the same."""


def ask(home: Path, command: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Answer:
    """Send a command to the turnlane that holds `home`. Raises NotRunning or NoAnswer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(seconds)
        try:
            peer.connect(control_path(home))
            peer.sendall(msgspec.json.encode(command) + b"\n")
            line = b""
            while not line.endswith(b"\n") and (piece := peer.recv(65536)):
                line += piece
            return msgspec.json.decode(line, type=Answer)
        except (
            TimeoutError,
            BlockingIOError,
        ) as error:  # so does one with a line of them before it
            raise NoAnswer(_unanswered(home, command, seconds)) from error
        except (OSError, msgspec.DecodeError) as error:  # it may end before it has answered
            raise NotRunning(str(home / CONTROL_NAME)) from error


def _unanswered(home: Path, command: Mapping[str, Any], seconds: float) -> str:
    problem = f"the turnlane on {home} did not answer within {seconds:g} s"
    if command.get("command") not in LOOKING:
        problem += "; it may still do what was asked"
    return problem + if_it_hangs(home)
