"""Ownership: a process gets the home's lock and the listener in one way, and gives them up in one.

Theory of operation
-------------------
The lock is free, or its holder hands it over (`proxy.process.handover`), or its end is awaited. The
listener is inherited, from the service manager or from the running process, or bound here. After a
hand-over was offered, the whole runtime is opened and closed once as a rehearsal: what can fail in
a start fails while the other process still serves.
"""

import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Final

import trio

from proxy.codex.place import Environment
from proxy.codex.while_serving import put_back, settle_at_start
from proxy.config.load import Config
from proxy.errors import HomeTaken
from proxy.home.draining import Drain, noted, sweep
from proxy.home.lock import control_path, if_it_hangs, locked
from proxy.process.activation import Launch
from proxy.process.handover import HandOverRefused, Peer, Word, ask_for_offer
from proxy.runtime import open_runtime
from proxy.server.listener import adopt, fits, listen, moved_to

logger = logging.getLogger(__name__)

LOCK_SECONDS: Final = 15.0
"""How long `--take-over` waits for the lock of a process that is ending, or is stuck: longer than a
drain."""
COMMAND_SECONDS: Final = 2.0
"""How long any other start waits for a command that has the home."""
LOCK_AGAIN_SECONDS: Final = 0.02


class Ownership:
    """The home's lock and the listener. `config` has the address of an inherited listener;
    `managed`: the listener is a service manager's, where connections wait while none accepts."""

    config: Config
    listening: trio.socket.SocketType

    def __init__(self, config: Config, launch: Launch, codex: Environment | None) -> None:
        self.config = config
        self.managed = launch.listening is not None
        self.left = False
        self._launch = launch
        self._codex = codex
        self._codex_of_next = ""
        self._running: Peer | None = None
        self._lock = ExitStack()
        self._until_end = ExitStack()
        self._until_end.callback(self._lock.close)

    def __repr__(self) -> str:
        return f"<Ownership of {self.config.home}{', left' if self.left else ''}>"

    @property
    def control(self) -> str:
        return control_path(self.config.home)

    def leave(self, codex_of_next: str = "") -> None:
        """Free the home and the listener for the next process, and note that this one drains. Codex
        is put back unless the next process connects the same configuration."""
        self.left = True
        self._codex_of_next = codex_of_next
        drain = Drain(pid=os.getpid(), since=time.time())
        self._until_end.enter_context(noted(self.config.home, drain))
        self.listening.close()
        self._lock.close()

    async def ready(self) -> None:
        """Say that this process serves: the one that handed over may send its clients away."""
        if self._running is not None:
            await self._running.say(Word.READY)
            self._running.close()

    async def acquire(self) -> None:
        """Get lock and listener. Raises ConfigError."""
        self._running = running = await self._lock_or_offer()
        if running is not None:
            self._until_end.enter_context(running)
        self._get_listener(running)
        if running is not None:
            async with open_runtime(self.config, rehearsal=True):
                pass
            codex = "" if self._codex is None else str(self._codex.config)
            await running.say(Word.COMMIT, codex)
            await self._wait_lock(LOCK_SECONDS)
        sweep(self.config.home)

    async def _lock_or_offer(self) -> Peer | None:
        take_over = self._launch.take_over
        try:
            self._take_lock()
        except HomeTaken as taken:
            try:
                running = await ask_for_offer(self.control, only_if_draining=not take_over)
            except HandOverRefused as refused:
                raise HomeTaken(taken.key, f"{taken.problem}, {refused}") from None
            if running is not None:
                return running
            if take_over:
                logger.warning("%s, which does not answer; waiting for it to end", taken.problem)
            await self._wait_lock(LOCK_SECONDS if take_over else COMMAND_SECONDS)
        return None

    def _get_listener(self, running: Peer | None) -> None:
        inherited = self._launch.listening
        if running is not None and running.passed is not None:
            if inherited is None and fits(running.passed, self.config.server):
                inherited, running.passed = running.passed, None
            else:  # or its clients would wait where no process accepts
                running.passed.close()
        if inherited is None:
            self.listening = listen(self.config.server)
        else:
            self.listening = adopt(inherited)
            self.config = moved_to(self.config, self.listening)
        self._until_end.enter_context(self.listening)

    async def _wait_lock(self, seconds: float) -> None:
        deadline = trio.current_time() + seconds
        while True:
            try:
                self._take_lock()
            except HomeTaken as held:
                if trio.current_time() > deadline:
                    hint = if_it_hangs(self.config.home)
                    problem = f"{held.problem}, which does not answer{hint}"
                    raise HomeTaken(held.key, problem) from None
                await trio.sleep(LOCK_AGAIN_SECONDS)
            else:
                return

    def _take_lock(self) -> None:
        self._lock.enter_context(locked(self.config.home))
        if self._codex is not None:
            settle_at_start(self._codex)
            self._lock.callback(self._put_codex_back)

    def _put_codex_back(self) -> None:
        if self._codex is not None and str(self._codex.config) != self._codex_of_next:
            put_back(self._codex)

    def close(self) -> None:
        self._until_end.close()


@asynccontextmanager
async def open_ownership(
    config: Config, launch: Launch, codex: Environment | None = None
) -> AsyncIterator[Ownership]:
    """Own the home and the listener for the block, or until `leave`. With the home goes the care
    for Codex's configuration. Raises ConfigError; then another process that has the home serves on.
    """
    ownership = Ownership(config, launch, codex)
    try:
        await ownership.acquire()
        yield ownership
    finally:
        ownership.close()
