"""`turnlane serve --codex`: connect Codex while turnlane serves, and put it back at the drain.

Codex is connected once turnlane answers, and restored as soon as the drain begins, so that a client
that starts during the drain goes to its provider. However the process ends, short of a kill, Codex
is put back; the next start, or `turnlane codex off`, settles what a kill leaves.

A process that takes over says which configuration it connects (`proxy.process.handover`). If that
is the same one, the process before it leaves the configuration as it is, and clients that have read
it do not count as started before Codex was connected.
"""

import logging

import trio

from lifecycle import Admission
from proxy.codex.connect import disconnect, settle
from proxy.codex.place import Environment, turn_on
from proxy.codex.saved import read_note
from proxy.control.identity import port_of
from proxy.errors import ConfigError, RoutingError

logger = logging.getLogger(__name__)


def settle_at_start(place: Environment) -> None:
    """Put back what was begun and never finished. The caller holds the home's lock."""
    try:
        settle(place.files, place.home)
    except RoutingError as error:
        logger.error("Codex: %s", error)  # noqa: TRY400  not a bug


async def stay_connected(place: Environment, url: str, admission: Admission) -> None:
    """Keep Codex connected until the door closes. If it cannot be connected, the log says why."""
    try:
        done = await trio.to_thread.run_sync(turn_on, place, port_of(url))
    except (RoutingError, ConfigError) as error:
        logger.error("Codex is not connected: %s", error)  # noqa: TRY400
        return
    logger.info("Codex: %s", done)
    await admission.door_closed.wait()
    await trio.to_thread.run_sync(put_back, place)


def put_back(place: Environment) -> None:
    """Disconnect the configuration that this process was to connect, and no other. The caller holds
    the home's lock, so no other process serves the clients that are put back."""
    try:
        note = read_note(place.files, place.home)
        if note is not None and note.config == str(place.config):
            logger.info("Codex: %s", disconnect(place.files, place.home))
    except RoutingError as error:
        logger.error("Codex: %s", error)  # noqa: TRY400
