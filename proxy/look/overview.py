"""Overview: what `turnlane status` knows, gathered from the process, the journal and Codex.

Whether a turnlane runs is asked, never read from a file: the one that holds the home answers on
its control socket, and what listens on its port says that it is a turnlane. Nothing changes a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from proxy.codex.adoption import Adoption
from proxy.codex.evidence import adoption
from proxy.codex.probe import port_of, problem_at
from proxy.codex.processes import Walk
from proxy.control import NotRunning, ask
from proxy.errors import ConfigError
from proxy.hour import LastHour, Past
from proxy.past import past_of

REFUSALS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """`running` is what the process says of itself; None when none answers. `problem` is why it
    does not serve."""

    home: Path
    now: float
    url: str | None
    running: Mapping[str, Any] | None
    problem: str | None
    routing: Adoption
    last_hour: LastHour
    journal_problem: str | None

    @property
    def serving(self) -> bool:
        return self.running is not None and self.problem is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Eyes:
    """How the world is looked at; a test looks at another one."""

    environment: Mapping[str, str]
    wall: Callable[[], float]
    probe: Callable[[int], str | None] = problem_at
    walk: Walk | None = None


def overview(home: Path, eyes: Eyes) -> Overview:
    """Raises nothing: what cannot be seen is said to be so."""
    now = eyes.wall()
    running, problem = _running(home)
    url = None if running is None else _url(home)
    if running is not None:
        problem = "its listening address is not known" if url is None else _no_answer(eyes, url)
    try:
        past = past_of(home, now)
        journal_problem = None
    except ConfigError as error:
        past, journal_problem = Past(), str(error)
    return Overview(
        home=home,
        now=now,
        url=url,
        running=running,
        problem=problem,
        routing=adoption(home, eyes.environment, now, past.last_turn, url=url, walk=eyes.walk),
        last_hour=past.hour,
        journal_problem=journal_problem,
    )


def as_json(seen: Overview) -> dict[str, Any]:
    """Everything, for programs."""
    hour = asdict(seen.last_hour) | {"cache_share": seen.last_hour.cache_share}
    return {
        "serving": seen.serving,
        "problem": seen.problem,
        "url": seen.url,
        "home": str(seen.home),
        "routing": asdict(seen.routing),
        "hour": hour,
        "journal_problem": seen.journal_problem,
        "process": None if seen.running is None else dict(seen.running),
    }


def _running(home: Path) -> tuple[Mapping[str, Any] | None, str | None]:
    try:
        said = ask(home, {"command": "status"})
    except (NotRunning, ConfigError):
        return None, f"no turnlane answers for {home}"
    if said.get("service") != "turnlane":
        return None, f"what answers for {home} is no turnlane"
    return said, None


def _url(home: Path) -> str | None:
    try:
        url = ask(home, {"command": "url"}).get("url")
    except (NotRunning, ConfigError):
        return None
    return url if isinstance(url, str) else None


def _no_answer(eyes: Eyes, url: str) -> str | None:
    return eyes.probe(port_of(url))
