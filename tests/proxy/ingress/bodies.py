"""A lease for a body, and what it holds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lifecycle import Admission, Ask, Lease, Limits, PrincipalId

MIB = 2**20


@asynccontextmanager
async def admitted(
    *, announced: int = 0, memory: int = 256 * MIB
) -> AsyncIterator[tuple[Lease, Admission]]:
    admission = Admission(Limits(memory_bytes=memory))
    ask = Ask(principal=PrincipalId("local"), body_bytes=announced)
    async with admission.lease(ask) as lease:
        yield lease, admission


def held(admission: Admission) -> int:
    return admission.statistics().memory.held_bytes
