"""Around: `turnlane serve --codex` connects Codex while it serves, and puts it back at the drain.

Codex is connected once turnlane answers, and put back as soon as the drain begins, so that a client
that starts during it goes to its provider. However the process ends, short of a kill, it is put
back then; what a kill leaves is settled by the next start, or by `turnlane codex off`.

A process that takes over announces beforehand that it will connect Codex too. Then the one before
leaves the configuration as it is, and who has read it is not called older than the routing.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil
import trio

from lifecycle import Admission
from proxy.codex.connect import disconnect, settle
from proxy.codex.place import Environment, turn_on
from proxy.codex.saved import read_note
from proxy.control.identity import port_of
from proxy.errors import ConfigError, RoutingError

logger = logging.getLogger(__name__)

HEIR_NAME: Final = "codex.heir"


@contextmanager
def put_back_at_the_end(place: Environment | None) -> Iterator[None]:
    """The caller holds the home's lock, so nobody else serves the clients that are put back."""
    if place is None:
        yield
        return
    with suppress(OSError):
        _heir(place).unlink()
    try:
        settle(place.files, place.home)
    except RoutingError as error:
        logger.error("Codex: %s", error)  # noqa: TRY400  it is no bug
    try:
        yield
    finally:
        if not _has_heir(place):
            _put_back(place)


def announce(place: Environment | None) -> None:
    """That this process is about to take the home over, and connects this configuration then. If
    it cannot be said, Codex is put back and connected anew."""
    if place is not None:
        with suppress(OSError):
            _heir(place).touch(mode=0o600)
            _heir(place).write_bytes(msgspec.json.encode((os.getpid(), str(place.config))))


def _heir(place: Environment) -> Path:
    return place.home / HEIR_NAME


def _has_heir(place: Environment) -> bool:
    """One that has ended since its announcement does not count."""
    try:
        pid, config = msgspec.json.decode(_heir(place).read_bytes(), type=tuple[int, str])
    except (OSError, msgspec.DecodeError):
        return False
    return config == str(place.config) and psutil.pid_exists(pid)


async def stay_connected(place: Environment, url: str, admission: Admission) -> None:
    """Until the door closes. If Codex cannot be connected, the log says why, and no more."""
    try:
        done = await trio.to_thread.run_sync(turn_on, place, port_of(url))
    except (RoutingError, ConfigError) as error:
        logger.error("Codex is not connected: %s", error)  # noqa: TRY400
        return
    logger.info("Codex: %s", done)
    await admission.door_closed.wait()
    await trio.to_thread.run_sync(_put_back, place)


def _put_back(place: Environment) -> None:
    """Only the configuration this process was to connect: another one is its owner's affair."""
    try:
        note = read_note(place.files, place.home)
        if note is not None and note.config == str(place.config):
            logger.info("Codex: %s", disconnect(place.files, place.home))
    except RoutingError as error:
        logger.error("Codex: %s", error)  # noqa: TRY400
