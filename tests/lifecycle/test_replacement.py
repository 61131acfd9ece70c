"""A thousand replacements at random moments: never both lost, and never a leak.

The times are drawn from a seed and pass on a virtual clock.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
import trio
from trio.testing import MockClock

from lifecycle import Admission, AdmissionRefused, Ask, Lease, Limits, Waiting
from tests.lifecycle.asks import ask

ROUNDS = 1000


@dataclass(eq=False)
class SocketTurn:
    """One turn of a connection: it runs for a while, and takes some time to end."""

    entry: Ask | Waiting
    seconds: float
    lingers: float
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    lease: Lease | None = None
    refused: bool = False
    finished: bool = False
    over: trio.Event = field(default_factory=trio.Event)

    async def run(self, admission: Admission) -> None:
        try:
            with self.scope:
                async with admission.lease(self.entry) as self.lease:
                    await self._work()
        except AdmissionRefused:
            self.refused = True
        finally:
            self.over.set()

    async def _work(self) -> None:
        try:
            await trio.sleep(self.seconds)
            self.finished = True
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.lingers)


class Socket:
    """A connection with one turn at a time; a new one replaces the one that runs."""

    def __init__(self, admission: Admission, nursery: trio.Nursery, random: Random) -> None:
        self.admission = admission
        self._nursery = nursery
        self._random = random
        self.turns: list[SocketTurn] = []
        self.replaced = 0
        self.refused = 0

    def create(self, ask: Ask) -> None:
        entry: Ask | Waiting = ask
        current = self.turns[-1] if self.turns else None
        if current is not None and not current.over.is_set():
            if current.lease is None and not isinstance(current.entry, Waiting):
                return  # it waits for another connection: there is nothing to take over yet
            try:
                entry = self._succeed(current, ask)
            except AdmissionRefused:
                self.refused += 1
                return
            current.scope.cancel()
            self.replaced += 1
        seconds, lingers = self._random.uniform(0, 0.02), self._random.uniform(0, 0.005)
        turn = SocketTurn(entry, seconds, lingers)
        self.turns.append(turn)
        self._nursery.start_soon(turn.run, self.admission)

    def _succeed(self, current: SocketTurn, ask: Ask) -> Waiting:
        if current.lease is not None:
            return self.admission.succeed(current.lease.id, ask)
        assert isinstance(current.entry, Waiting)
        return self.admission.succeed(current.entry.earlier, ask, instead_of=current.entry)

    async def run_first(self, ask: Ask) -> None:
        """Create a turn and come back once it has been admitted, however often that takes."""
        self.turns.clear()
        while True:
            if not self.turns or self.turns[0].refused:
                self.turns.clear()
                self.create(ask)
            await trio.sleep(self._random.uniform(0, 0.001))
            if self.turns[0].lease is not None:
                return


def nobody_is_lost(turns: list[SocketTurn]) -> bool:
    """A turn that was cut short has a successor; one that was promised a lease has had it."""
    cut = [turn for turn in turns if not turn.finished and not turn.refused]
    heirs = [heir for turn, heir in pairwise(turns) if turn in cut]
    refused = [turn for turn in turns if turn.refused]
    return (
        len(heirs) == len(cut)
        and all(isinstance(heir.entry, Waiting) for heir in heirs)
        and not any(isinstance(turn.entry, Waiting) for turn in refused)
    )


async def replace_at_random(socket: Socket, random: Random, sizes: list[int]) -> None:
    with trio.fail_after(60):
        await socket.run_first(ask(1, body_bytes=10))
        for _ in range(random.choice([1, 1, 2, 3])):
            await trio.sleep(random.uniform(0, 0.008))
            number = random.choice([1, 1, 1, 1, 2, None])
            socket.create(ask(number, body_bytes=random.choice(sizes)))
        for turn in socket.turns:
            await turn.over.wait()


def held(admission: Admission) -> tuple[int, int, int]:
    now = admission.statistics()
    return now.lanes.active, now.turns.active, now.memory.held_bytes


@pytest.mark.parametrize("seed", [1, 2])
async def test_of_a_thousand_replacements_none_loses_both_turns_or_leaks(
    seed: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    random = Random(seed)
    socket = Socket(Admission(Limits(memory_bytes=40)), nursery, random)
    for _ in range(ROUNDS):
        await replace_at_random(socket, random, [0, 5, 10, 30, 41])

        assert nobody_is_lost(socket.turns)
        assert held(socket.admission) == (0, 0, 0)
    assert socket.replaced > ROUNDS / 2
    assert 0 < socket.refused < ROUNDS / 2
