"""How far running Codex clients use the configuration that leads here, judged from evidence.

`judge_adoption` decides from values alone; `adoption` gathers them and changes nothing.

Theory of operation
-------------------
Codex reads its configuration when it opens a thread. In a process that started before Codex was
connected, open threads keep their old settings while new threads may have the new ones, so a turn
can arrive while other threads are still pending.

The strongest evidence is a turn that a client sent after Codex was connected; then a process known
to be older; then anything that could not be seen. Only if none of these speaks against it does the
configuration count as adopted. An empty list of processes is weak evidence for it: the next process
will read the configuration.

What can still cause a false `adopted`:

- a client started with `-c openai_base_url=...`, `-c model_provider=...`, `--profile` or `--oss`;
- a system-wide or managed configuration that overrides the user's;
- another CODEX_HOME, or the same one under a path that does not resolve to it;
- a client with this home in another place: on another machine, in a container, or of another user;
- a program that embeds Codex under another name, so that its processes are not recognised;
- a process that read the configuration early and re-executed itself, or was started by an older
  process that passed its own configuration on: it started later than it read the configuration;
- a clock that was set between the write and the start, since both are wall times;
- a configuration that was changed and changed back while a client started;
- a client that started just before the write, within the same second.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from proxy.codex.destination import Sight
from proxy.codex.place import Environment
from proxy.codex.reading import is_local, is_same_place
from proxy.codex.saved import Note
from proxy.control.offline import past_of, past_on_disk
from proxy.errors import ConfigError

CLOCK_SECONDS: Final = 1.0
"""If Codex was connected further in the future than this, the clock has been set back since."""


class State(StrEnum):
    NOT_APPLICABLE = "not-applicable"
    ADOPTED = "adopted"
    PENDING = "pending-client-restart"
    UNKNOWN = "unknown"
    SEEN = "seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexProcess:
    """A running Codex process. `started` is seconds since the epoch; None if it, or whether the
    process uses this CODEX_HOME, cannot be read."""

    pid: int
    kind: str
    started: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexRoute:
    """Where the configuration points. `ours` is None if that is unknown; `since` is when it began
    to point there, and `exact` is False if it may have been earlier."""

    ours: bool | None
    why: str = ""
    since: float | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known. Times are seconds since the epoch; `walked`: every process was seen."""

    routing: CodexRoute
    clients: tuple[CodexProcess, ...]
    walked: bool
    last_turn: float | None
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The judgement. `stale` are the clients that started before Codex was connected, whatever the
    state; `weak` marks an inference from having seen no client at all."""

    state: State
    why: str
    stale: tuple[CodexProcess, ...] = ()
    unreadable: tuple[CodexProcess, ...] = ()
    weak: bool = False


def judge_adoption(evidence: Evidence) -> Adoption:
    """Judge the evidence; the strongest piece decides."""
    routing, since = evidence.routing, evidence.routing.since
    if routing.ours is False:
        return Adoption(state=State.NOT_APPLICABLE, why=routing.why)
    if routing.ours is None or since is None:
        return Adoption(
            state=State.UNKNOWN, why=routing.why or "it is unknown when Codex was connected"
        )
    unreadable = tuple(client for client in evidence.clients if client.started is None)
    if since > evidence.now + CLOCK_SECONDS:
        why = "the clock was set back since Codex was connected, so ages cannot be compared"
        return Adoption(state=State.UNKNOWN, why=why, unreadable=unreadable)
    stale = tuple(client for client in evidence.clients if is_stale(client, since))
    state, why = _judge(evidence, since, stale, unreadable)
    weak = state is State.ADOPTED and not evidence.clients
    return Adoption(state=state, why=why, stale=stale, unreadable=unreadable, weak=weak)


def is_stale(client: CodexProcess, since: float) -> bool:
    """Return whether a client started in an earlier second; start times are no more precise."""
    return client.started is not None and int(client.started) < int(since)


def _judge(
    evidence: Evidence,
    since: float,
    stale: tuple[CodexProcess, ...],
    unreadable: tuple[CodexProcess, ...],
) -> tuple[State, str]:
    if evidence.last_turn is not None and evidence.last_turn > since:
        return State.SEEN, "a client has sent a turn since Codex was connected"
    if stale and evidence.routing.exact:
        return (
            State.PENDING,
            "Codex processes that started before Codex was connected need a restart",
        )
    if stale:
        return State.UNKNOWN, "some Codex processes may have started before Codex was connected"
    if not evidence.walked:
        return State.UNKNOWN, "the list of processes could not be read completely"
    if unreadable:
        return State.UNKNOWN, "some Codex processes could not be inspected"
    if evidence.clients:
        return State.ADOPTED, "every Codex process started after Codex was connected"
    return State.ADOPTED, "no Codex process is running; the next one will read the configuration"


def adoption(place: Environment, sight: Sight, last_turn_seen: float | None) -> Adoption:
    """Return how far Codex has taken up the routing to this turnlane. Raises nothing.

    `last_turn_seen` is when the last turn came from a client, if one did.
    """
    routing = find_routing(place, sight)
    clients: tuple[CodexProcess, ...] = ()
    walked = True
    if routing.ours:
        from proxy.codex.processes import find_clients  # it imports psutil, and is seldom needed

        resolved, user = Path(os.path.realpath(place.codex)), os.getuid()
        found = find_clients(resolved, user, *(() if place.walk is None else (place.walk,)))
        clients, walked = found.clients, found.complete
    return judge_adoption(
        Evidence(
            routing=routing,
            clients=clients,
            walked=walked,
            last_turn=last_turn_seen,
            now=place.wall(),
        )
    )


def last_turn(home: Path, wall: float, *, running: bool = True) -> float | None:
    """Return when the newest turn began of a client that has threads, as Codex does. A turnlane
    that is known not to answer is not asked."""
    try:
        return (past_of if running else past_on_disk)(home, wall).last_turn
    except ConfigError:
        return None


def find_routing(place: Environment, sight: Sight) -> CodexRoute:
    """Return whether Codex's turns go to this turnlane, and since when."""
    reading, note = sight.reading, sight.noted
    if reading.problem is not None:
        return CodexRoute(ours=None, why=f"Codex's configuration cannot be read: {reading.problem}")
    if reading.url is None:
        return CodexRoute(ours=False, why="Codex goes directly to the provider")
    if sight.note_problem is not None:
        return CodexRoute(ours=None, why=sight.note_problem)
    ours = _is_ours(reading.url, note, sight.here)
    if not ours:
        why = f"Codex goes to {reading.url}" + (
            "" if ours is False else ", which may be a turnlane"
        )
        return CodexRoute(ours=ours, why=why)
    if note is not None and note.phase == "done" and reading.value == note.value == reading.url:
        return CodexRoute(ours=True, since=note.wall)
    return CodexRoute(ours=True, since=_changed(place.config), exact=False)


def _is_ours(points_at: str, note: Note | None, url: str | None) -> bool | None:
    if url is not None:
        return is_same_place(points_at, f"{url}/v1")
    if note is not None and points_at == note.value:
        return True
    return None if is_local(points_at) else False


def _changed(config: Path) -> float | None:
    """Return when the file was last written: the value was not written later than that."""
    try:
        return config.stat().st_mtime
    except OSError:
        return None
