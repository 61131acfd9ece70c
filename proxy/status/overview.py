"""The overview that `turnlane status` shows, gathered from the process, the journal and Codex.

Whether a turnlane runs is asked, never read from a file: the one that holds the home answers on
its control socket, and what listens on its port says that it is a turnlane. Nothing changes a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.codex.adoption import Adoption, adoption
from proxy.codex.destination import Asks, Course, course, look_at
from proxy.codex.files import Disk
from proxy.codex.reading import codex_home
from proxy.control.client import ask_if_running
from proxy.control.commands import ShowStatus, ShowUrl
from proxy.control.identity import answerer_at, problem_with
from proxy.control.offline import past_of, past_on_disk
from proxy.errors import ConfigError
from proxy.home.lock import holder
from proxy.journal.summary import LastHour, Past

if TYPE_CHECKING:
    from proxy.codex.processes import Walk

REFUSALS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What is known about one home.

    `running` is the status document of the process, or None if none answers; `held_by` is then the
    pid of a process that holds the home all the same. `problem` says why turnlane does not serve,
    `hindrance` why `turnlane serve` would fail too, as far as that is known. `now` is seconds since
    the epoch.
    """

    home: Path
    now: float
    url: str | None
    upstream: str | None
    running: Mapping[str, Any] | None
    held_by: str | None
    problem: str | None
    hindrance: str | None
    routing: Adoption
    course: Course
    last_hour: LastHour
    journal_problem: str | None

    @property
    def serving(self) -> bool:
        return self.running is not None and self.problem is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The ways to look at the world; a test looks at another one."""

    environment: Mapping[str, str]
    wall: Callable[[], float]
    probe: Callable[[str], str | None] = problem_with
    asks: Asks = answerer_at
    hindrance: Callable[[], str | None] = lambda: None
    walk: "Walk | None" = None


def overview(home: Path, eyes: Sources) -> Overview:
    """Gather the overview. Raises nothing: it says what cannot be seen."""
    now = eyes.wall()
    running = ask_if_running(home, ShowStatus())
    if running is not None and running.get("service") != "turnlane":
        running = None
    held_by = holder(home) if running is None else None
    place = None if running is None else ask_if_running(home, ShowUrl())
    url = None if place is None else place.url
    try:
        past = past_on_disk(home, now) if running is None else past_of(home, now)
        journal_problem = None
    except ConfigError as error:
        past, journal_problem = Past(), str(error)
    sight = look_at(
        Disk(),
        home,
        codex_home(eyes.environment),
        here=url,
        held=running is not None or held_by is not None,
        hung=held_by is not None,
        asks=eyes.asks,
    )
    return Overview(
        home=home,
        now=now,
        url=url,
        upstream=None if place is None else place.upstream,
        running=running,
        held_by=held_by,
        problem=_problem(home, running, held_by, url, eyes),
        hindrance=eyes.hindrance() if running is None and held_by is None else None,
        course=course(sight),
        routing=adoption(home, eyes.environment, now, past.last_turn, url=url, walk=eyes.walk),
        last_hour=past.hour,
        journal_problem=journal_problem,
    )


def as_json(seen: Overview) -> dict[str, Any]:
    """Return the whole overview as a JSON document for programs."""
    hour = asdict(seen.last_hour) | {"cache_share": seen.last_hour.cache_share}
    return {
        "serving": seen.serving,
        "problem": seen.problem,
        "url": seen.url,
        "home": str(seen.home),
        "held_by": seen.held_by,
        "hindrance": seen.hindrance,
        "routing": asdict(seen.routing) | routed(seen.course, serving=seen.serving),
        "hour": hour,
        "journal_problem": seen.journal_problem,
        "process": None if seen.running is None else dict(seen.running),
    }


def routed(found: Course, *, serving: bool) -> dict[str, Any]:
    """Return what a program is told besides the adoption, which does not say whether a
    configuration works."""
    return {"way": found.way, "answered": found.answered, "serving": serving}


def _problem(
    home: Path,
    running: Mapping[str, Any] | None,
    held_by: str | None,
    url: str | None,
    eyes: Sources,
) -> str | None:
    if running is None:
        if held_by is not None:
            return f"pid {held_by} holds {home} but does not answer"
        return f"no turnlane is running on {home}"
    if url is None:
        return "its listening address is unknown"
    if running.get("state") == "draining":
        return "shutting down: new turns are refused"
    return eyes.probe(url)
