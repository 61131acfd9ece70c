"""Scribe: writes down what changes of bindings and accounts, as soon as it does.

Theory of operation
-------------------
One owner task takes the changes together and has a thread write them; a turn waits for no disk. The
one exception is the end of a turn that has bound its thread anew: it waits a moment until that is
on disk, so that a process that is killed between two turns has forgotten no binding.
"""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from proxy.accounts.account import AccountId
from proxy.accounts.bindings import BindingKey, Bindings
from proxy.accounts.shelf import Changes, Shelf
from proxy.accounts.state import Lasting

logger = logging.getLogger("turnlane")

WRITE_SECONDS: Final = 0.05
"""Between two writes, unless somebody waits."""
PATIENCE_SECONDS: Final = 0.5
"""A disk that is slower than this costs a binding its certainty, not a turn its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What is written together."""

    bindings: Changes
    accounts: Sequence[tuple[AccountId, Lasting | None]]


class Scribe:
    """`known` says what is to be kept of an account; None for one that is to be forgotten."""

    def __init__(self, bindings: Bindings, known: Callable[[AccountId], Lasting | None]) -> None:
        self._bindings = bindings
        self._known = known
        self._dirty: set[AccountId] = set()
        self._due = trio.Event()
        self._awaited = trio.Event()
        self._under_way: frozenset[BindingKey] = frozenset()
        self._wrote = trio.lowlevel.ParkingLot()
        self._running = False
        self._flushed = False

    def touch(self, account: AccountId | None = None) -> None:
        """Something changed that is to be written down."""
        if account is not None:
            self._dirty.add(account)
        self._due.set()

    async def wait_written(self, key: BindingKey | None) -> None:
        """Until a thread's binding is on disk, or for `PATIENCE_SECONDS`."""
        with trio.move_on_after(PATIENCE_SECONDS):
            while self._running and key is not None and self._is_pending(key):
                self._due.set()
                self._awaited.set()
                await self._wrote.park()

    def _is_pending(self, key: BindingKey) -> bool:
        return key in self._under_way or self._bindings.has_changed(key)

    async def write(self, shelf: Shelf) -> None:
        """The owner task: write down what changes, until cancelled."""
        own_thread = trio.CapacityLimiter(1)
        self._running = True
        try:
            while True:
                await self._due.wait()
                self._due = trio.Event()
                batch = self._take()
                self._under_way = frozenset(key for key, _ in batch.bindings)
                if not await trio.to_thread.run_sync(_write, shelf, batch, limiter=own_thread):
                    self._bindings.put_back(self._under_way)
                    self._dirty.update(account for account, _ in batch.accounts)
                self._under_way = frozenset()
                self._awaited = trio.Event()
                self._wrote.unpark_all()
                with trio.move_on_after(WRITE_SECONDS):
                    await self._awaited.wait()
        finally:
            self._running = False
            self._wrote.unpark_all()

    def flush(self, shelf: Shelf) -> None:
        """Write what is left, once and for all: after that another process may be the writer. No
        owner task may run any more."""
        if not self._flushed:
            self._flushed = True
            _write(shelf, self._take())

    def _take(self) -> _Batch:
        """Taken together here, so that the thread touches nothing that a turn does."""
        known = [(account, self._known(account)) for account in self._dirty]
        self._dirty.clear()
        return _Batch(
            bindings=self._bindings.take_changed(),
            accounts=known,
        )


def _write(shelf: Shelf, batch: _Batch) -> bool:
    try:
        shelf.write(batch.bindings, batch.accounts)
    except sqlite3.Error as error:
        logger.warning("%d bindings are not written down: %s", len(batch.bindings), error)
        return False
    return True
