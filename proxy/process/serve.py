"""The serving process, from its lock to its last byte: the service nursery, and signals.

The service nursery owns everything that outlives a turn: connections, the control socket, the
signal watcher. It is cancelled when the drain is over.
"""

import gc
import logging
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import trio

from proxy.codex.files import Disk
from proxy.codex.place import Environment
from proxy.codex.saved import read_note
from proxy.codex.while_serving import stay_connected
from proxy.config.load import Config
from proxy.control.handler import Handler
from proxy.control.socket import serve_control
from proxy.errors import RoutingError
from proxy.process.activation import Launch
from proxy.process.handover import Peer, is_ready, wait_next
from proxy.process.ownership import Ownership, open_ownership
from proxy.runtime import Runtime, open_runtime
from proxy.server.listener import url
from proxy.server.server import Server

logger = logging.getLogger(__name__)

WANTED_FILES = 65536
"""Open files: a WebSocket and its upstream connection are two; the usual limit of 1,024 is soon
reached."""
UNHEARD_SECONDS = 1.0
"""For clients that were accepted just before the hand-over to send their first request."""


async def serve(
    config: Config,
    say: Callable[[str], None],
    *,
    codex: Environment | None = None,
    launch: Launch = Launch(),  # noqa: B008  frozen
    task_status: trio.TaskStatus[Runtime] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until the drain is over that a signal or the next process begins. `say` is called with
    the base URL once it answers; if there is a `codex`, it is connected while this process owns the
    home.

    Raises ConfigError when the home or the address cannot be had.
    """
    _raise_file_limit()
    async with (
        open_ownership(config, launch, codex) as ownership,
        open_runtime(ownership.config) as runtime,
        trio.open_nursery() as service,
    ):
        server = Server(runtime)
        lasting = codex is not None or ownership.managed  # put back, or served again when needed
        warn = None if lasting else partial(warn_of_codex, config.home)
        service.start_soon(_watch_signals, runtime, server, service.cancel_scope, warn)
        if runtime.database is not None:
            service.start_soon(runtime.database.write)
        service.start_soon(runtime.opener.refresher.serve, service)
        await service.start(_own, runtime, ownership, server, codex, service)
        say(url(ownership.listening))
        launch.tell("READY=1")
        task_status.started(runtime)
        await ownership.ready()
        await server.drain()
        service.cancel_scope.cancel()


async def _own(
    runtime: Runtime,
    ownership: Ownership,
    server: Server,
    codex: Environment | None,
    service: trio.Nursery,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Do what only the owner of a home does: accept, obey commands, look after accounts,
    connect Codex. Returns after handing the home over, with the drain begun."""
    following: Peer | None = None
    codex_of_next = ""
    here = url(ownership.listening)
    async with trio.open_nursery() as owning:
        commands = Handler(runtime, here)
        await owning.start(serve_control, ownership.control, commands.answer, owning)
        owning.start_soon(server.accept, trio.SocketListener(ownership.listening), service)
        owning.start_soon(commands.checkups.watch)
        if codex is not None:
            owning.start_soon(stay_connected, codex, here, runtime.admission)
        if ownership.managed:
            owning.start_soon(_leave_at_drain, runtime, owning.cancel_scope)
        task_status.started()
        refuses = partial(_refuses, runtime, ownership)
        following, codex_of_next = await wait_next(ownership.control, ownership.listening, refuses)
        owning.cancel_scope.cancel()
    await runtime.accounts.store.leave()
    ownership.leave(codex_of_next)
    if following is not None:
        with following:
            await _follow(runtime, following)


async def _leave_at_drain(runtime: Runtime, owning: trio.CancelScope) -> None:
    """Give the home up at once: new connections wait in the service manager's listener."""
    await runtime.admission.door_closed.wait()
    owning.cancel()


def _refuses(runtime: Runtime, ownership: Ownership, only_if_draining: bool) -> str | None:
    if ownership.managed:
        return "which belongs to a service manager: restart it there"
    if only_if_draining and not runtime.admission.draining:
        return (
            "which serves already: `turnlane status` shows it; "
            "`turnlane serve --take-over` replaces it without a gap"
        )
    return None


async def _follow(runtime: Runtime, following: Peer) -> None:
    """Begin the drain once the next process can serve the clients that are sent away."""
    admission = runtime.admission
    ready = await is_ready(following)
    with trio.move_on_after(UNHEARD_SECONDS):
        await admission.door_closed.wait()
    draining = admission.draining
    seconds = admission.drain_seconds_left if draining else runtime.config.server.drain_seconds
    logger.info(
        "%s; draining for up to %g s",
        "the next process serves" if ready else "the next process ended before it was ready",
        seconds,
    )
    admission.close_door(seconds, succeeded=ready)


async def _watch_signals(
    runtime: Runtime,
    server: Server,
    service: trio.CancelScope,
    warn: Callable[[], None] | None,
) -> None:
    """Drain at the first signal, end at once at the second."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if runtime.admission.draining:
                runtime.admission.close_door(0.0)  # the shutdown ends what runs, not its client
                server.cut()
                service.cancel()
                return
            seconds = runtime.config.server.drain_seconds
            logger.info("draining for up to %g s; a second signal ends at once", seconds)
            if warn is not None:
                warn()
            runtime.admission.close_door(seconds)


def warn_of_codex(home: Path) -> None:
    """Warn if a Codex that was connected by hand will find no turnlane after this one."""
    with suppress(RoutingError):  # `turnlane codex` reports a note that cannot be read
        note = read_note(Disk(), home)
        if note is not None and note.phase == "done":
            logger.warning(
                "Codex still points here: `turnlane codex off` lets it work without turnlane"
            )


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft < wanted:
        with suppress(
            ValueError, OSError
        ):  # some systems allow less than the limit that they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


YOUNG_OBJECTS: Final = 10_000
"""New containers until the collector looks for cycles among them. A turn makes few cycles and many
containers that are freed without it; with Python's 700 the collector takes a thirtieth of a turn,
and some of its runs stop all streams for 18 ms."""


def collect_less_often() -> None:
    """Exempt everything imported so far from garbage collection, and collect less often. Call it
    once, when the imports are done."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
