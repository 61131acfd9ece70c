"""Command: `turnlane codex on`, `off` and `show`; each returns an exit code: 0 done, 1 not done."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from proxy.codex.adoption import Adoption
from proxy.codex.connect import connect
from proxy.codex.destination import Asks
from proxy.codex.evidence import CONFIG_NAME, adoption, codex_home, last_turn, read_codex
from proxy.codex.files import Disk, Files
from proxy.codex.processes import Walk
from proxy.codex.reading import BUILT_IN, leads_here
from proxy.codex.toml_edit import KEY
from proxy.control.identity import answerer_at, base_url, port_of, problem_at, running_url
from proxy.errors import RoutingError
from proxy.keys import KeyRing


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the commands work: turnlane's home and Codex's, and how they reach out."""

    home: Path
    environment: Mapping[str, str]
    files: Files = Disk()  # noqa: RUF009  it has no state
    wall: Callable[[], float] = time.time
    probe: Callable[[int], str | None] = problem_at
    asks: Asks = answerer_at
    walk: Walk | None = None

    def adoption(self, url: str | None = None) -> Adoption:
        return adoption(
            self.home,
            self.environment,
            self.wall(),
            last_turn(self.home, self.wall(), running=url is not None),
            url=url,
            files=self.files,
            walk=self.walk,
        )

    @property
    def codex(self) -> Path:
        return codex_home(self.environment)

    @property
    def config(self) -> Path:
        return self.codex / CONFIG_NAME


def turn_on(place: Environment, port: int | None) -> str:
    """Raises RoutingError or ConfigError: then nothing has changed."""
    if len(KeyRing(place.home)):
        raise RoutingError(
            f"this turnlane wants a key, and {KEY} has no place for one: "
            "`turnlane codex show` prints the provider to use instead"
        )
    if not place.codex.is_dir():
        named = "CODEX_HOME is" if place.environment.get("CODEX_HOME") else "Codex's home would be"
        raise RoutingError(
            f"{named} {place.codex}, and that is no directory: start Codex once, then try again"
        )
    if port is None:
        port = port_of(running_url(place.home))
    if (problem := place.probe(port)) is not None:
        raise RoutingError(problem)
    value = f"{base_url(port)}/v1"
    if (by := _by_provider(place, port)) is not None:
        return by
    return connect(place.files, place.home, place.config, value, place.wall)


def _by_provider(place: Environment, port: int) -> str | None:
    """That a provider of its owner's leads here already. Raises RoutingError when one leads away:
    then the root key would have no effect."""
    url = base_url(port)
    reading = read_codex(place.files, place.codex)
    if reading.problem is not None or reading.provider == BUILT_IN:
        return None
    if leads_here(reading.provider, reading.url, url):
        return f"{place.config} points at {reading.url} already, by model_provider"
    raise RoutingError(
        f"your model_provider {reading.provider} decides where Codex goes, so {KEY} would have no "
        f"effect: set its base_url in {place.config} to {url}/v1, or remove that model_provider"
    )
