"""PURE. How far running Codex clients have taken the routing up, judged from evidence.

Theory of operation
-------------------
Codex reads its configuration when a thread is opened: in a process that is older than the routing
open threads go on as before, and new ones need not, so a turn may be seen while others are pending.

The strongest evidence is a turn that a client really sent after the routing was written; then a
process known to be older; then whatever could not be seen; and only with nothing against it the
routing counts as adopted. An empty list of processes speaks for it weakly: whoever starts next will
read it.

What can still make a false `adopted`:

- a client started with `-c openai_base_url=...`, `-c model_provider=...`, `--profile` or `--oss`;
- a system-wide or managed configuration that overrides the user's;
- another CODEX_HOME, or the same one under a path that does not resolve to it;
- a client elsewhere with this home: another machine or a container, or another user;
- a program that embeds Codex under another name, so that its processes are not known as Codex;
- a process that read the configuration early and re-executed itself, or was started by an older
  one that hands its own configuration down: its start time is younger than what it read;
- a clock that was set between the writing and the start, since both are wall times;
- a configuration that was changed and changed back while a client started;
- a client that started within the second of the writing, just before it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CLOCK_SECONDS: Final = 1.0
"""A routing from further ahead than this means that the clock was set back since."""


class State(StrEnum):
    NOT_APPLICABLE = "not-applicable"
    ADOPTED = "adopted"
    PENDING = "pending-client-restart"
    UNKNOWN = "unknown"
    SEEN = "seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexProcess:
    """A running Codex process. `started` is None when that, or whether it uses this CODEX_HOME,
    cannot be read."""

    pid: int
    kind: str
    started: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexRoute:
    """Where the configuration points. `ours` is None when that cannot be told; `since` is when it
    came to be so, not `exact` when it may have been earlier."""

    ours: bool | None
    why: str = ""
    since: float | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Times are seconds since the epoch. `walked` is whether every process could be looked at."""

    routing: CodexRoute
    clients: tuple[CodexProcess, ...]
    walked: bool
    last_turn: float | None
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """`stale` are clients that are older than the routing, whatever the state; `weak` is an
    inference from having seen nobody."""

    state: State
    why: str
    stale: tuple[CodexProcess, ...] = ()
    unreadable: tuple[CodexProcess, ...] = ()
    weak: bool = False


def judge(evidence: Evidence) -> Adoption:
    routing, since = evidence.routing, evidence.routing.since
    if routing.ours is False:
        return Adoption(state=State.NOT_APPLICABLE, why=routing.why)
    if routing.ours is None or since is None:
        return Adoption(state=State.UNKNOWN, why=routing.why or "it is not known since when")
    unreadable = tuple(client for client in evidence.clients if client.started is None)
    if since > evidence.now + CLOCK_SECONDS:
        why = "the routing is from the future: the clock was set since, so ages cannot be compared"
        return Adoption(state=State.UNKNOWN, why=why, unreadable=unreadable)
    stale = tuple(client for client in evidence.clients if is_stale(client, since))
    state, why = _judge(evidence, since, stale, unreadable)
    weak = state is State.ADOPTED and not evidence.clients
    return Adoption(state=state, why=why, stale=stale, unreadable=unreadable, weak=weak)


def is_stale(client: CodexProcess, since: float) -> bool:
    """Older by the second: start times have no finer truth, and the same second is not stale."""
    return client.started is not None and int(client.started) < int(since)


def _judge(
    evidence: Evidence,
    since: float,
    stale: tuple[CodexProcess, ...],
    unreadable: tuple[CodexProcess, ...],
) -> tuple[State, str]:
    if evidence.last_turn is not None and evidence.last_turn > since:
        return State.SEEN, "a turn came from a client after the routing was written"
    if stale and evidence.routing.exact:
        return State.PENDING, "Codex processes are older than the routing: restart them"
    if stale:
        return State.UNKNOWN, "it is not known whether the routing is older than these processes"
    if not evidence.walked:
        return State.UNKNOWN, "the list of processes could not be read to its end"
    if unreadable:
        return State.UNKNOWN, "Codex processes could not be looked into"
    if evidence.clients:
        return State.ADOPTED, "every Codex process is younger than the routing"
    return State.ADOPTED, "no Codex process runs; the next one will read it (a weak inference)"
