"""Commands as they come over the control socket: JSON in, JSON out."""

from collections.abc import Callable
from typing import Any

import msgspec

from proxy.control.commands import read_command
from proxy.control.handler import Handler
from proxy.control.socket import answered
from proxy.errors import CommandFailed
from proxy.runtime import Runtime

URL = "http://127.0.0.1:10110"


async def answer(running: Runtime, command: dict[str, Any]) -> dict[str, Any]:
    """What a running process answers."""
    handler = Handler(running, URL)
    return read(await answered(msgspec.json.encode(command), handler.answer))


def done(do: Callable[[Any], object], command: dict[str, Any]) -> dict[str, Any]:
    """What becomes of a command that `do` carries out."""
    try:
        return read(msgspec.json.encode(do(read_command(msgspec.json.encode(command)))))
    except CommandFailed as error:
        return {"error": str(error)}


def read(line: bytes) -> dict[str, Any]:
    return msgspec.json.decode(line, type=dict[str, Any])
