"""A task that holds a lease until it is told how to end."""

import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import (
    Admission,
    AdmissionReason,
    AdmissionRefused,
    Ask,
    Cause,
    Lease,
    TurnScope,
    Waiting,
)


class BrokenTurnError(Exception):
    """What a turn of these tests raises when it fails."""


class Holder:
    """Enters a lease, and leaves it when told; `lease` and `refusal` say what it got.

    `lingers` is for how long its cleanup takes, whatever cancels it.
    """

    def __init__(self, admission: Admission, ask: Ask | Waiting, *, lingers: float = 0) -> None:
        self._admission = admission
        self._ask = ask
        self._lingers = lingers
        self._told = trio.Event()
        self._breaks = False
        self._scope = TurnScope()
        self.lease: Lease | None = None
        self.admitted_at: float | None = None
        self.refusal: AdmissionReason | None = None
        self.refused_at: float | None = None
        self.over = trio.Event()

    async def run(self) -> None:
        try:
            with self._scope:
                await self._hold()
        except AdmissionRefused as no:
            self.refusal = no.reason
            self.refused_at = trio.current_time()
        finally:
            self.over.set()

    async def _hold(self) -> None:
        try:
            async with self._admission.lease(self._ask, self._scope) as lease:
                self.lease = lease
                self.admitted_at = trio.current_time()
                lease.nursery.start_soon(self._run)
        except* BrokenTurnError:
            pass

    async def _run(self) -> None:
        try:
            await self._told.wait()
            if self._breaks:
                raise BrokenTurnError
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self._lingers)

    async def wait_over(self) -> None:
        with trio.fail_after(60):
            await self.over.wait()

    @property
    def held(self) -> Lease:
        assert self.lease is not None
        return self.lease

    @property
    def is_displaced(self) -> bool:
        return self._scope.cause is Cause.DISPLACED

    @property
    def is_holding(self) -> bool:
        return self.lease is not None and not self.over.is_set()

    def finish(self) -> None:
        self._told.set()

    def fail(self) -> None:
        self._breaks = True
        self._told.set()

    def cancel(self) -> None:
        self._scope.cancel(Cause.CLIENT_GONE)


class Holders:
    """Starts holders; at the end of a test all are told to finish, and nothing may be left held."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._started: dict[Admission, list[Holder]] = {}

    async def __call__(
        self, admission: Admission, ask: Ask | Waiting, *, lingers: float = 0
    ) -> Holder:
        """Start one, and return it once it holds its lease, waits or was refused."""
        holder = Holder(admission, ask, lingers=lingers)
        self._started.setdefault(admission, []).append(holder)
        self._nursery.start_soon(holder.run)
        await wait_all_tasks_blocked()
        return holder

    async def finish(self) -> None:
        for admission, holders in self._started.items():
            for holder in holders:
                holder.finish()
            for holder in holders:
                await holder.wait_over()
            assert is_quiet(admission)


def is_quiet(admission: Admission) -> bool:
    """Return whether nothing is held and nothing waits."""
    now = admission.statistics()
    held = (now.turns.active, now.lanes.active, now.memory.held_bytes)
    waiting = (now.lines.waiting, len(admission._granted))
    return (*held, now.workflows.active, *waiting) == (0,) * 6
