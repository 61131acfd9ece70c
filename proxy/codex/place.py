"""The place where the codex commands work, and connecting once a turnlane answers there."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.codex.connect import connect
from proxy.codex.files import Disk
from proxy.codex.reading import BUILT_IN, CONFIG_NAME, codex_home, leads_here, read_codex
from proxy.codex.toml_edit import KEY
from proxy.errors import RoutingError

if TYPE_CHECKING:
    from proxy.codex.processes import Walk
    from proxy.control.identity import Answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The homes of turnlane and of Codex, and how a command reaches out.

    `asks` and `walk` stand for `who_answers` and `psutil.process_iter`, which are imported where
    they are used: `turnlane codex off` needs neither.
    """

    home: Path
    environment: Mapping[str, str]
    files: Disk = Disk()  # noqa: RUF009  it has no state
    wall: Callable[[], float] = time.time
    asks: "Callable[[str], Answered] | None" = None
    walk: "Walk | None" = None

    def ask(self, url: str) -> "Answered":
        """Ask what answers at a base URL of this machine."""
        from proxy.control.identity import who_answers

        return (self.asks or who_answers)(url)

    @property
    def codex(self) -> Path:
        return codex_home(self.environment)

    @property
    def config(self) -> Path:
        return self.codex / CONFIG_NAME


def turn_on(place: Environment, port: int | None) -> str:
    """Point Codex's configuration at a port where a turnlane answers, and say what was done. Raises
    RoutingError or ConfigError: then nothing has changed."""
    from proxy.control.identity import base_url, port_of, running_url
    from proxy.keys import KeyRing

    if len(KeyRing(place.home)):
        raise RoutingError(
            f"this turnlane requires a key, which {KEY} cannot send; "
            "`turnlane codex show` prints a provider that can"
        )
    if not place.codex.is_dir():
        named = "CODEX_HOME" if place.environment.get("CODEX_HOME") else "Codex's home"
        raise RoutingError(
            f"{named}, {place.codex}, is not a directory; start Codex once and try again"
        )
    if port is None:
        port = port_of(running_url(place.home))
    url = base_url(port)
    if (problem := place.ask(url).problem) is not None:
        raise RoutingError(problem)
    if (by := _by_provider(place, url)) is not None:
        return by
    return connect(place.files, place.home, place.config, f"{url}/v1", place.wall)


def _by_provider(place: Environment, url: str) -> str | None:
    """Say that a provider of the user's leads here already; None if none decides. Raises
    RoutingError when one leads away: then the root key would have no effect."""
    reading = read_codex(place.files, place.codex)
    if reading.problem is not None or reading.provider == BUILT_IN:
        return None
    if leads_here(reading.provider, reading.url, url):
        return f"{place.config} already points at {reading.url}, by model_provider"
    raise RoutingError(
        f"model_provider {reading.provider} decides where Codex goes, so {KEY} would have no "
        f"effect; set its base_url in {place.config} to {url}/v1, or remove model_provider"
    )
