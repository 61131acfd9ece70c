"""serve: one process from its lock to its last byte; the service nursery, and signals.

The service nursery owns everything that outlives a turn: connections, the control socket, the
signal watcher. It is cancelled when the drain is over.
"""

import logging
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from proxy.checkup import watch_spent
from proxy.codex.around import put_back_at_the_end, stay_connected
from proxy.codex.command import Place
from proxy.config import Config
from proxy.config import Server as ServerSettings
from proxy.control import answer
from proxy.errors import ConfigError
from proxy.home import locked, serve_control
from proxy.runtime import Runtime, open_runtime
from proxy.server import Server

logger = logging.getLogger("turnlane")

BACKLOG = 1024
WANTED_FILES = 65536
"""Open files: a WebSocket and its upstream connection are two; a default of 1,024 is soon gone."""


async def serve(
    config: Config,
    say: Callable[[str], None],
    *,
    codex: Place | None = None,
    task_status: trio.TaskStatus[Runtime] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until a signal has been drained; `say` is told the base URL once it is ready, and
    Codex, if there is a `codex`, is connected while it serves.

    Raises ConfigError when the home or the address cannot be had.
    """
    _raise_file_limit()
    with (
        locked(config.home) as control,
        put_back_at_the_end(codex),
        _listen(config.server) as listening,
    ):
        url = _url(listening)
        async with open_runtime(config) as runtime, trio.open_nursery() as service:
            server = Server(runtime)
            service.start_soon(_watch_signals, runtime, server, service.cancel_scope)
            commands = partial(_answer, runtime, url)
            await service.start(serve_control, control, commands, service)
            service.start_soon(runtime.journal.write)
            service.start_soon(runtime.opener.refresher.serve, service)
            if runtime.shelf is not None:
                service.start_soon(runtime.accounts.write, runtime.shelf)
            service.start_soon(watch_spent, runtime)
            if codex is not None:
                service.start_soon(stay_connected, codex, url, runtime.admission)
            say(url)
            task_status.started(runtime)
            await server.serve(trio.SocketListener(listening), service)
            service.cancel_scope.cancel()


async def _answer(runtime: Runtime, url: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Only who listens knows where; and where turns go may have been said by a flag."""
    if asked.get("command") == "url":
        return {"url": url, "upstream": runtime.config.upstream.url}
    return await answer(runtime, asked)


async def _watch_signals(runtime: Runtime, server: Server, service: trio.CancelScope) -> None:
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
            runtime.admission.close_door(seconds)


def _listen(server: ServerSettings) -> trio.socket.SocketType:
    """A listening socket, to be closed by its `with`. Raises ConfigError."""
    plain = socket.socket(socket.AF_INET6 if ":" in server.host else socket.AF_INET)
    try:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        plain.bind((server.host, server.port))
        plain.listen(BACKLOG)
    except OSError as error:
        plain.close()
        where = f"{server.host}:{server.port}"
        raise ConfigError("server.port", f"cannot listen on {where}: {error}") from error
    plain.setblocking(False)
    return trio.socket.from_stdlib_socket(plain)


def _url(listening: trio.socket.SocketType) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft < wanted:
        with suppress(ValueError, OSError):  # some systems have a lower limit than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
