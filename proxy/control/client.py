"""The client of the control socket: send one command, return the answer."""

import socket
from pathlib import Path
from typing import TypeVar

import msgspec

from proxy.control.commands import Request
from proxy.errors import CommandFailed, ConfigError
from proxy.home.lock import control_path, if_it_hangs

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 3.0
"""For commands that only read: a user is waiting to see the answer."""

A = TypeVar("A")


class NotRunning(CommandFailed):
    """No turnlane holds this home."""


class NoAnswer(NotRunning):
    """A turnlane does, and has not answered in time. It may still carry the command out."""


class _Error(msgspec.Struct):
    error: str | None = None


def ask(home: Path, command: Request[A], seconds: float | None = None) -> A:
    """Send a command to the turnlane that holds `home`, and return its answer.

    Raises NotRunning, NoAnswer after `seconds`, CommandFailed if the command cannot be carried out,
    or ConfigError for a home whose path is too long.
    """
    if seconds is None:
        seconds = LOOK_SECONDS if command.reads else ANSWER_SECONDS
    try:
        line = _exchange(control_path(home), msgspec.json.encode(command) + b"\n", seconds)
        if (problem := msgspec.json.decode(line, type=_Error).error) is not None:
            raise CommandFailed(problem)
        return msgspec.json.decode(line, type=command.answer_type)
    except (TimeoutError, BlockingIOError) as error:  # a full backlog of commands blocks, too
        raise NoAnswer(_unanswered(home, command, seconds)) from error
    except msgspec.ValidationError as error:
        problem = f"the turnlane on {home} has another version; restart it"
        raise CommandFailed(f"{problem} ({error})") from error
    except (OSError, msgspec.DecodeError) as error:  # it may end before it has answered
        problem = f"no turnlane is running on {home}; start one with `turnlane serve`"
        raise NotRunning(problem) from error


def ask_if_running(home: Path, command: Request[A]) -> A | None:
    """Return the answer to a command; None if no turnlane is running, or the one that is cannot
    say."""
    try:
        return ask(home, command)
    except (CommandFailed, ConfigError):
        return None


def _exchange(control: str, line: bytes, seconds: float) -> bytes:
    """Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(seconds)
        peer.connect(control)
        peer.sendall(line)
        answer = b""
        while not answer.endswith(b"\n") and (piece := peer.recv(65536)):
            answer += piece
        return answer


def _unanswered(home: Path, command: Request[A], seconds: float) -> str:
    problem = f"the turnlane on {home} did not answer within {seconds:g} s"
    if not command.reads:
        problem += "; it may still carry the command out"
    return problem + if_it_hangs(home)
