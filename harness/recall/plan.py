"""PURE the seeded plan of a run: its sessions, their turns, and the secrets planted in them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from uuid import UUID

from harness.recall.calls import Call, CallKind
from harness.recall.faults import SERVED, Fault, PlannedFault, RecallTransport, Step, deal

MOST_CALLS = 8
CHILDREN = 12
"""More at once than the default budget of one root has turns."""
WORKERS = 7
"""So many of them may run: 8 turns at once, one of which is kept for the conversation itself."""
SECRET_PREFIX = "planted-"
SECRET_DIGITS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds that simulated tools and clients take: from, to."""

    tool_seconds: tuple[float, float] = (0.010, 0.500)
    fault_seconds: tuple[float, float] = (0.020, 0.400)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """One user message: the calls the model answers with, and the words it ends with."""

    number: int
    turn_id: str
    calls: tuple[Call, ...]
    fault: PlannedFault | None = None
    held: bool = False
    """The upstream holds it until every session has arrived."""
    stands: bool = False
    """The upstream begins its stream and then holds it until this turn is told to go on."""

    def fault_at(self, step: Step, attempt: int) -> Fault | None:
        """The fault of one request; what is tried again is served."""
        if self.fault is None or attempt > 1 or self.fault.step is not step:
            return None
        return self.fault.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """One simulated client: its identity, its secret, its turns."""

    name: str
    thread_id: str
    secret: str
    turns: tuple[TurnPlan, ...]
    root_id: str | None = None
    """The thread of the conversation that spawned it, if it is a sub-agent."""
    parent_id: str | None = None

    @property
    def session_id(self) -> str:
        """Codex puts the root thread there."""
        return self.root_id or self.thread_id


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut:
    """A conversation, the sub-agents it spawns all at once, and one that one of these spawns."""

    root: SessionPlan
    children: tuple[SessionPlan, ...]
    grandchild: SessionPlan

    @property
    def workers(self) -> tuple[SessionPlan, ...]:
        return (*self.children, self.grandchild)

    @property
    def refusals(self) -> int:
        """The children too many; then one of them once more, and the grandchild."""
        return len(self.children) - WORKERS + 2

    @property
    def requests(self) -> int:
        turns = len(self.root.turns) + len(self.workers)
        return len(Step) * turns + self.refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedExchange:
    """One request of a client: which session, turn, step and attempt."""

    thread_id: str
    turn: int
    step: Step
    attempt: int = 1

    @property
    def tag(self) -> str:
        return f"{self.thread_id}/{self.turn}/{self.step}/{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One request of the plan, with the fault it meets."""

    session: SessionPlan
    turn: TurnPlan
    exchange: ScriptedExchange
    fault: Fault | None

    @property
    def where(self) -> str:
        exchange = self.exchange
        fault = f" {self.fault}" if self.fault else ""
        return f"{self.session.name} turn {exchange.turn} {exchange.step} {exchange.attempt}{fault}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that client and upstream agree on before a run."""

    seed: int
    transport: RecallTransport
    waves: tuple[SessionPlan, ...]
    faulty: tuple[SessionPlan, ...]
    beyond: tuple[SessionPlan, ...]
    """Sessions that ask for a lane while all lanes are held: they must be refused."""
    fan_out: FanOut | None = None
    swap: bool = False
    """The upstream swaps one call of the first session with one of the second."""

    def sessions(self) -> Iterator[SessionPlan]:
        yield from self.waves
        yield from self.faulty
        yield from self.beyond
        if self.fan_out is not None:
            yield from (self.fan_out.root, *self.fan_out.workers)

    def by_thread(self) -> Mapping[str, SessionPlan]:
        return {session.thread_id: session for session in self.sessions()}

    def exchanges(self) -> Iterator[Planned]:
        """Every request of waves and faults in which all goes as planned."""
        for session in (*self.waves, *self.faulty):
            for turn in session.turns:
                for step in Step:
                    yield from _attempts(session, turn, step)

    @property
    def requests(self) -> int:
        """The number of requests in a run that goes as planned."""
        fanned = self.fan_out.requests if self.fan_out is not None else 0
        return sum(1 for _ in self.exchanges()) + len(self.beyond) + fanned

    def refused(self) -> Iterator[Planned]:
        """Yield the requests for which there is no lane."""
        for session in self.beyond:
            yield next(_attempts(session, session.turns[0], Step.CALLS))


def _attempts(session: SessionPlan, turn: TurnPlan, step: Step) -> Iterator[Planned]:
    fault = turn.fault_at(step, 1)
    for attempt in (1,) if fault in SERVED else (1, 2):
        exchange = ScriptedExchange(
            thread_id=session.thread_id, turn=turn.number, step=step, attempt=attempt
        )
        met = turn.fault_at(step, attempt)
        yield Planned(session=session, turn=turn, exchange=exchange, fault=met)


def make_plan(
    *,
    seed: int,
    transport: RecallTransport,
    sessions: int,
    rounds: int,
    beyond: int = 0,
    fan_out: bool = False,
    swap: bool = False,
    pace: Pace | None = None,
) -> Plan:
    """The same arguments give the same plan, to the byte."""
    pace = pace or Pace()
    rng = Random(f"turnlane recall {seed}")
    faults = deal(rng, transport, sessions, each=-(-rounds // 4))
    return Plan(
        seed=seed,
        transport=transport,
        waves=tuple(_wave_session(rng, i, rounds, pace) for i in range(sessions)),
        faulty=tuple(_faulty_session(rng, i, dealt, pace) for i, dealt in enumerate(faults)),
        beyond=tuple(_wave_session(rng, i, 1, pace, "beyond") for i in range(beyond)),
        fan_out=_fan_out(rng, pace) if fan_out else None,
        swap=swap,
    )


def _wave_session(
    rng: Random, index: int, rounds: int, pace: Pace, kind: str = "wave"
) -> SessionPlan:
    secret = _secret(rng)
    held = kind == "wave"
    turns = tuple(_turn(rng, number, secret, pace, held=held) for number in range(rounds))
    return SessionPlan(name=f"{kind}-{index}", thread_id=_uuid(rng), secret=secret, turns=turns)


def _faulty_session(rng: Random, index: int, faults: tuple[Fault, ...], pace: Pace) -> SessionPlan:
    """A healthy turn, then the faulty ones, then a healthy turn that recalls all of it."""
    secret = _secret(rng)
    planned = (None, *(_planned(rng, kind, pace) for kind in faults), None)
    turns = tuple(_turn(rng, i, secret, pace, fault=fault) for i, fault in enumerate(planned))
    return SessionPlan(name=f"faulty-{index}", thread_id=_uuid(rng), secret=secret, turns=turns)


def _fan_out(rng: Random, pace: Pace) -> FanOut:
    """The root takes a turn before its children are there, and one in the middle of them."""
    secret = _secret(rng)
    turns = tuple(
        _turn(rng, i, secret, pace, stands=stands) for i, stands in enumerate((False, True))
    )
    root = SessionPlan(name="root", thread_id=_uuid(rng), secret=secret, turns=turns)
    children = tuple(_child(rng, f"child-{i}", root, root, pace) for i in range(CHILDREN))
    grandchild = _child(rng, "grandchild", root, children[0], pace)
    return FanOut(root=root, children=children, grandchild=grandchild)


def _child(
    rng: Random, name: str, root: SessionPlan, parent: SessionPlan, pace: Pace
) -> SessionPlan:
    secret = _secret(rng)
    return SessionPlan(
        name=name,
        thread_id=_uuid(rng),
        secret=secret,
        turns=(_turn(rng, 0, secret, pace, stands=True),),
        root_id=root.thread_id,
        parent_id=parent.thread_id,
    )


def _planned(rng: Random, kind: Fault, pace: Pace) -> PlannedFault:
    delay = rng.uniform(*pace.fault_seconds)
    return PlannedFault(kind=kind, step=rng.choice(list(Step)), delay_seconds=delay)


def _turn(
    rng: Random,
    number: int,
    secret: str,
    pace: Pace,
    *,
    held: bool = False,
    stands: bool = False,
    fault: PlannedFault | None = None,
) -> TurnPlan:
    calls = tuple(_call(rng, secret, pace) for _ in range(rng.randint(1, MOST_CALLS)))
    return TurnPlan(
        number=number, turn_id=_uuid(rng), calls=calls, held=held, stands=stands, fault=fault
    )


def _call(rng: Random, secret: str, pace: Pace) -> Call:
    return Call(
        kind=rng.choice(list(CallKind)),
        call_id=f"call_{rng.getrandbits(64):016x}",
        argument=f"look for {secret}",
        latency_seconds=rng.uniform(*pace.tool_seconds),
    )


def _secret(rng: Random) -> str:
    return f"{SECRET_PREFIX}{rng.getrandbits(4 * SECRET_DIGITS):0{SECRET_DIGITS}x}"


def _uuid(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))
