"""The scripted upstream of a run: it plays the plan, and remembers what it was asked."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from harness.recall.acts import Drop, HoldTurn, HoldWave, PlainReply, SendBytes, acts
from harness.recall.audit import Arrival, read_request
from harness.recall.family import At
from harness.recall.plan import Plan
from harness.recall.stage import Stage
from harness.wire.upstream import Received, open_upstream


@dataclass(slots=True, kw_only=True, eq=False)
class UpstreamMemory:
    """Requests that the upstream received, and how they ended, by the tag of each exchange."""

    sends: Counter[str] = field(default_factory=Counter)
    cuts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def note(self, arrival: Arrival) -> None:
        self.sends[arrival.exchange.tag] += 1
        where = f"{arrival.session.name} {arrival.exchange.tag.partition('/')[2]}"
        self.problems += [f"{where}: {problem}" for problem in arrival.problems]


class PlanScript:
    """Answers each request as the plan says; knows a session by the headers that reach it."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.memory = UpstreamMemory()
        self.stage = stage
        self._plan = plan
        self._sessions = plan.by_thread()

    async def __call__(self, received: Received) -> None:
        if (received.method, received.path) == ("GET", "/v1/models"):
            await received.reply(200, b'{"models":[]}')
            return
        arrival = read_request(self._sessions, received.headers, received.body)
        if (received.method, received.path) != ("POST", "/v1/responses"):
            arrival = f"unexpected {received.method} {received.path}"
        if isinstance(arrival, str):
            self.memory.problems.append(arrival)
            await received.reply(404, b'{"error":{"message":"not scripted"}}')
            return
        self.memory.note(arrival)
        try:
            await self._perform(received, arrival)
        except (trio.Cancelled, trio.BrokenResourceError):
            self.memory.cuts[arrival.exchange.tag] += not received.concluded
            raise
        if not received.concluded:
            await received.end()  # a peer that has read the terminal event need not wait for this

    async def _perform(self, received: Received, arrival: Arrival) -> None:
        for act in acts(self._plan, arrival.session, arrival.exchange):
            match act:
                case SendBytes(data):
                    if not received.begun:
                        await received.begin()
                    await received.write(data)
                case HoldWave(wave):
                    await self.stage.wait_opened(wave, arrival.session.thread_id)
                case HoldTurn():
                    await self.stage.family.pause(arrival.session.thread_id, At.STANDING)
                case PlainReply():
                    await received.reply(act.status, act.body, act.headers)
                    return
                case Drop():
                    await received.drop()
                    return
                case _:
                    await trio.sleep_forever()


@asynccontextmanager
async def open_plan(
    plan: Plan, stage: Stage, port: int = 0
) -> AsyncIterator[tuple[PlanScript, int]]:
    """Serve a plan until the block ends; yield its script and its port.

    Raises OSError when it cannot listen at `port`.
    """
    script = PlanScript(plan, stage)
    async with open_upstream(script, port=port) as upstream:
        yield script, upstream.port
