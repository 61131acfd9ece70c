"""open_turn: the nursery that owns a lease, from the grant to the last task's end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from lifecycle.admission import Admission, Lease
from lifecycle.ask import Ask
from lifecycle.ledger import Waiting


@dataclass(frozen=True, slots=True)
class Turn:
    """An admitted turn: tasks started in its nursery end with it."""

    lease: Lease
    nursery: trio.Nursery


@asynccontextmanager
async def open_turn(admission: Admission, ask: Ask | Waiting) -> AsyncIterator[Turn]:
    """Run the block in a nursery of its own, under a lease that outlives the nursery by nothing.

    Raises AdmissionRefused before the block. A lease displaced by another connection cancels the
    block; the caller sees `turn.lease.displaced` afterwards.
    """
    async with admission.lease(ask) as lease:
        with lease.scope:
            async with trio.open_nursery() as nursery:
                yield Turn(lease, nursery)
                nursery.cancel_scope.cancel()  # helpers end with the turn
