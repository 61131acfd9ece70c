"""Around: `turnlane serve --codex` connects Codex while it serves, and puts it back at the drain.

Codex is connected once turnlane answers, and put back as soon as the drain begins, so that a client
that starts during it goes to its provider. However the process ends, short of a kill, it is put
back then; what a kill leaves is settled by the next start, or by `turnlane codex off`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from lifecycle import Admission
from proxy.codex.command import Place, turn_on
from proxy.codex.note import read_note
from proxy.codex.probe import port_of
from proxy.codex.route import disconnect, settle
from proxy.errors import ConfigError, RoutingError

logger = logging.getLogger("turnlane")


@contextmanager
def put_back_at_the_end(place: Place | None) -> Iterator[None]:
    """The caller holds the home's lock, so nobody else serves the clients that are put back."""
    if place is None:
        yield
        return
    try:
        settle(place.files, place.home)
    except RoutingError as error:
        logger.error("Codex: %s", error)  # noqa: TRY400  it is no bug
    try:
        yield
    finally:
        _put_back(place)


async def stay_connected(place: Place, url: str, admission: Admission) -> None:
    """Until the door closes. If Codex cannot be connected, the log says why, and no more."""
    try:
        done = await trio.to_thread.run_sync(turn_on, place, port_of(url))
    except (RoutingError, ConfigError) as error:
        logger.error("Codex is not connected: %s", error)  # noqa: TRY400
        return
    logger.info("Codex: %s", done)
    await admission.door_closed.wait()
    await trio.to_thread.run_sync(_put_back, place)


def _put_back(place: Place) -> None:
    """Only the configuration this process was to connect: another one is its owner's affair."""
    try:
        note = read_note(place.files, place.home)
        if note is not None and note.config == str(place.config):
            logger.info("Codex: %s", disconnect(place.files, place.home))
    except RoutingError as error:
        logger.error("Codex: %s", error)  # noqa: TRY400
