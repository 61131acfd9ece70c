"""Seat: what makes a process the turnlane of its home, the lock and the listener, and how it comes
to them: both free, the listener passed by a service manager, or both from the process before it.
"""

import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from proxy.codex.place import Environment
from proxy.codex.while_serving import announce, put_back_at_the_end
from proxy.config.load import Config
from proxy.errors import HomeTaken
from proxy.home.draining import Drain, noted, sweep
from proxy.home.lock import control_path, if_it_hangs, locked
from proxy.process.activation import Launch
from proxy.process.handover import HandOverRefused, Offer, ask_for_offer
from proxy.runtime import open_runtime
from proxy.server.listener import adopt, fits, listen, moved_to

logger = logging.getLogger(__name__)

LOCK_SECONDS: Final = 15.0
"""Longer than a drain: who holds the home and does not answer is ending, or is stuck."""
COMMAND_SECONDS: Final = 2.0
"""For a command that has the home where no turnlane runs."""
LOCK_AGAIN_SECONDS: Final = 0.05

Hold = Callable[[], None]
"""Takes the lock of the home. Raises HomeTaken."""


@dataclass(slots=True, kw_only=True, eq=False)
class Seat:
    """`config` has the address that is really listened on."""

    config: Config
    listening: trio.socket.SocketType
    managed: bool
    """The listener is a service manager's: connections wait there while nobody accepts."""
    offer: Offer | None
    kept: ExitStack
    lock: ExitStack
    wall: Callable[[], float] = time.time
    given_up: bool = field(default=False, init=False)

    @property
    def control(self) -> str:
        return control_path(self.config.home)

    async def ready(self) -> None:
        """Serving has begun: the process before this one may send its clients away."""
        if self.offer is not None:
            await self.offer.ready()

    def give_up(self) -> None:
        """Free the home and the listener for the next process; from here on it is only noted that
        this one drains."""
        self.given_up = True
        drain = Drain(pid=os.getpid(), since=self.wall())
        self.kept.enter_context(noted(self.config.home, drain))
        self.listening.close()
        self.lock.close()


@asynccontextmanager
async def open_seat(
    config: Config, launch: Launch, codex: Environment | None = None
) -> AsyncIterator[Seat]:
    """Take the home and the listener; both are free again at the end, or are given up before. With
    the home goes the care for Codex's configuration.

    Raises ConfigError; whoever has the home then serves on.
    """
    with ExitStack() as kept:
        lock = kept.enter_context(ExitStack())
        hold = partial(_hold_home, config.home, codex, lock)
        offer = await _lock_or_offer(config, launch, hold)
        if offer is not None:
            kept.enter_context(offer)
        listening, config = _listener(config, launch, offer)
        kept.enter_context(listening)
        if offer is not None:
            await _accept(offer, config, hold, codex)
        sweep(config.home)
        yield Seat(
            config=config,
            listening=listening,
            managed=launch.listening is not None,
            offer=offer,
            kept=kept,
            lock=lock,
        )


def _hold_home(home: Path, codex: Environment | None, lock: ExitStack) -> None:
    """Raises ConfigError."""
    lock.enter_context(locked(home))
    lock.enter_context(put_back_at_the_end(codex))


async def _lock_or_offer(config: Config, launch: Launch, hold: Hold) -> Offer | None:
    """Hold the home, or have an offer of its holder. Raises ConfigError."""
    try:
        hold()
    except HomeTaken as taken:
        control = control_path(config.home)
        try:
            offer = await ask_for_offer(control, only_if_draining=not launch.take_over)
        except HandOverRefused as refused:
            raise HomeTaken(taken.key, f"{taken.problem}, {refused}") from None
        if offer is None:
            if launch.take_over:
                logger.warning("%s and does not answer; waiting for its end", taken.problem)
            try:
                await _wait_held(hold, LOCK_SECONDS if launch.take_over else COMMAND_SECONDS)
            except HomeTaken as held:
                problem = f"{held.problem}, which does not answer{if_it_hangs(config.home)}"
                raise HomeTaken(held.key, problem) from None
        return offer
    return None


def _listener(
    config: Config, launch: Launch, offer: Offer | None
) -> tuple[trio.socket.SocketType, Config]:
    """What clients arrive on, and the configuration with its address. Raises ConfigError."""
    passed = launch.listening
    if offer is not None:
        if passed is None and fits(offer.listening, config.server):
            passed = offer.listening
        else:
            offer.listening.close()  # or its clients would wait where nobody accepts
    if passed is None:
        return listen(config.server), config
    listening = adopt(passed)
    return listening, moved_to(config, listening)


async def _accept(offer: Offer, config: Config, hold: Hold, codex: Environment | None) -> None:
    """Take the home over. What fails in a start fails in the rehearsal, while the other one still
    serves. Raises ConfigError."""
    async with open_runtime(config):
        pass
    announce(codex)
    if not await offer.commit():
        logger.warning("the turnlane that was here is gone without a word")
    await _wait_held(hold, LOCK_SECONDS)


async def _wait_held(hold: Hold, seconds: float) -> None:
    """Raises HomeTaken."""
    deadline = trio.current_time() + seconds
    while True:
        try:
            hold()
        except HomeTaken:
            if trio.current_time() > deadline:
                raise
            await trio.sleep(LOCK_AGAIN_SECONDS)
        else:
            return
