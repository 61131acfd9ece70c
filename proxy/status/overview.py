"""The overview that `turnlane status` shows, gathered from the process, the journal and Codex.

Whether a turnlane runs is asked, never read from a file: the one that holds the home answers on
its control socket, and what listens on its port says that it is a turnlane. Nothing changes a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from proxy.codex.adoption import Adoption, adoption
from proxy.codex.destination import Course, course, look_at
from proxy.codex.place import Environment
from proxy.control.client import ask_if_running
from proxy.control.commands import ShowStatus, ShowUrl
from proxy.control.offline import past_of, past_on_disk
from proxy.errors import ConfigError
from proxy.home.lock import holder
from proxy.journal.summary import LastHour, Past

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


def overview(place: Environment, hindrance: Callable[[], str | None] = lambda: None) -> Overview:
    """Gather the overview. Raises nothing: it says what cannot be seen. `hindrance` is called if no
    turnlane has the home, and says why it could not be started."""
    home, now = place.home, place.wall()
    running = ask_if_running(home, ShowStatus())
    if running is not None and running.get("service") != "turnlane":
        running = None
    held_by = holder(home) if running is None else None
    at = None if running is None else ask_if_running(home, ShowUrl())
    url = None if at is None else at.url
    try:
        past = past_on_disk(home, now) if running is None else past_of(home, now)
        journal_problem = None
    except ConfigError as error:
        past, journal_problem = Past(), str(error)
    held = running is not None or held_by is not None
    sight = look_at(place, here=url, held=held, hung=held_by is not None)
    return Overview(
        home=home,
        now=now,
        url=url,
        upstream=None if at is None else at.upstream,
        running=running,
        held_by=held_by,
        problem=_problem(place, running, held_by, url),
        hindrance=None if held else hindrance(),
        course=course(sight),
        routing=adoption(place, sight, past.last_turn),
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
        "routing": {
            **asdict(seen.routing),
            "way": seen.course.way,
            "answered": seen.course.answered,
            "serving": seen.serving,
        },
        "hour": hour,
        "journal_problem": seen.journal_problem,
        "process": None if seen.running is None else dict(seen.running),
    }


def _problem(
    place: Environment, running: Mapping[str, Any] | None, held_by: str | None, url: str | None
) -> str | None:
    if running is None:
        if held_by is not None:
            return f"pid {held_by} holds {place.home} but does not answer"
        return f"no turnlane is running on {place.home}"
    if url is None:
        return "its listening address is unknown"
    if running.get("state") == "draining":
        return "shutting down: new turns are refused"
    return place.ask(url).problem
