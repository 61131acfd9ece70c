"""serve: one process from its lock to its last byte; the service nursery, and signals.

The service nursery owns everything that outlives a turn: connections, the control socket, the
signal watcher. It is cancelled when the drain is over.

Garbage: what the cycle collector of a serving process looks at, and how often.
"""

import gc
import logging
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from proxy.codex.files import Disk
from proxy.codex.place import Environment
from proxy.codex.saved import read_note
from proxy.codex.while_serving import stay_connected
from proxy.config.load import Config
from proxy.control.checkup import watch_accounts
from proxy.control.commands import answer
from proxy.control.socket import serve_control
from proxy.errors import RoutingError
from proxy.process.activation import Launch
from proxy.process.handover import OtherProcess, released, wait_next
from proxy.process.seat import Seat, open_seat
from proxy.runtime import Runtime, open_runtime
from proxy.server.listener import url
from proxy.server.server import Server

logger = logging.getLogger(__name__)

WANTED_FILES = 65536
"""Open files: a WebSocket and its upstream connection are two; a default of 1,024 is soon gone."""
UNHEARD_SECONDS = 1.0
"""For clients that were accepted just before the hand-over to say what they want."""


async def serve(
    config: Config,
    say: Callable[[str], None],
    *,
    codex: Environment | None = None,
    launch: Launch = Launch(),  # noqa: B008  frozen
    task_status: trio.TaskStatus[Runtime] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until a signal, or the next process, has been drained; `say` is told the base URL once
    it is ready, and Codex, if there is a `codex`, is connected while it has the home.

    Raises ConfigError when the home or the address cannot be had.
    """
    _raise_file_limit()
    async with (
        open_seat(config, launch, codex) as seat,
        open_runtime(seat.config) as runtime,
        trio.open_nursery() as service,
    ):
        server = Server(runtime)
        lasting = codex is not None or seat.managed  # put back, or served again at its next client
        warn = None if lasting else partial(warn_of_codex, config.home)
        service.start_soon(_watch_signals, runtime, server, service.cancel_scope, warn)
        service.start_soon(runtime.journal.write)
        service.start_soon(runtime.opener.refresher.serve, service)
        await service.start(_hold, runtime, seat, server, codex, service)
        say(url(seat.listening))
        launch.tell("READY=1")
        task_status.started(runtime)
        await seat.ready()
        await server.drain()
        service.cancel_scope.cancel()


async def _hold(
    runtime: Runtime,
    seat: Seat,
    server: Server,
    codex: Environment | None,
    service: trio.Nursery,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """What only the turnlane of a home does: accept, obey commands, write bindings down, lead Codex
    here. Returns when it has passed the home on, with its drain begun."""
    following: OtherProcess | None = None
    here = url(seat.listening)
    async with trio.open_nursery() as holding:
        commands = partial(_answer, runtime, here)
        await holding.start(serve_control, seat.control, commands, holding)
        holding.start_soon(server.accept, trio.SocketListener(seat.listening), service)
        if runtime.shelf is not None:
            holding.start_soon(runtime.accounts.scribe.write, runtime.shelf)
        holding.start_soon(watch_accounts, runtime)
        if codex is not None:
            holding.start_soon(stay_connected, codex, here, runtime.admission)
        if seat.managed:
            holding.start_soon(_leave_at_drain, runtime, holding.cancel_scope)
        task_status.started()
        refuses = partial(_refuses, runtime, seat)
        following = await wait_next(seat.control, seat.listening, refuses)
        holding.cancel_scope.cancel()
    if runtime.shelf is not None:
        runtime.accounts.scribe.flush(runtime.shelf)
    seat.give_up()
    if following is not None:
        with following:
            await _follow(runtime, following)


async def _answer(runtime: Runtime, here: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Only who listens knows where; and where turns go may have been said by a flag."""
    if asked.get("command") == "url":
        return {"url": here, "upstream": runtime.config.upstream.url}
    return await answer(runtime, asked)


async def _leave_at_drain(runtime: Runtime, holding: trio.CancelScope) -> None:
    """The listener is the service manager's: whoever arrives waits there for the next process."""
    await runtime.admission.door_closed.wait()
    holding.cancel()


def _refuses(runtime: Runtime, seat: Seat, only_if_draining: bool) -> str | None:
    if seat.managed:
        return "which belongs to a service manager: restart it there"
    if only_if_draining and not runtime.admission.draining:
        return (
            "which serves already: `turnlane status` shows it; "
            "`turnlane serve --take-over` replaces it without a gap"
        )
    return None


async def _follow(runtime: Runtime, following: OtherProcess) -> None:
    """Begin the drain once the next process is ready for those who are sent away."""
    admission = runtime.admission
    ready = await released(following)
    with trio.move_on_after(UNHEARD_SECONDS):
        await admission.door_closed.wait()
    draining = admission.draining
    seconds = admission.drain_seconds_left if draining else runtime.config.server.drain_seconds
    logger.info(
        "%s; draining for up to %g s",
        "the next process serves" if ready else "the next process is gone before it was ready",
        seconds,
    )
    admission.close_door(seconds, succeeded=ready)


async def _watch_signals(
    runtime: Runtime,
    server: Server,
    service: trio.CancelScope,
    warn: Callable[[], None] | None,
) -> None:
    """The first signal drains, the second ends at once."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if runtime.admission.draining:
                runtime.admission.close_door(0.0)  # what runs ends by the shutdown, not its client
                server.cut()
                service.cancel()
                return
            seconds = runtime.config.server.drain_seconds
            logger.info("draining for up to %g s; a second signal ends at once", seconds)
            if warn is not None:
                warn()
            runtime.admission.close_door(seconds)


def warn_of_codex(home: Path) -> None:
    """A Codex that was connected by hand waits for a turnlane that is about to be gone."""
    with suppress(RoutingError):  # a note that cannot be read is for `turnlane codex` to say
        note = read_note(Disk(), home)
        if note is not None and note.phase == "done":
            logger.warning(
                "Codex still points here: `turnlane codex off` lets it work without turnlane"
            )


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft < wanted:
        with suppress(ValueError, OSError):  # some systems have a lower limit than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


YOUNG_OBJECTS: Final = 10_000
"""New containers until the collector looks for cycles among them. A turn makes few cycles and many
containers that go by themselves; with Python's 700 a thirtieth of a turn is spent looking, and some
looks stop all streams for 18 ms."""


def look_less_often() -> None:
    """What was imported is not looked at again. Call it once, when the imports are done."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
