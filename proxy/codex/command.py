"""Command: `turnlane codex on`, `off` and `show`; each returns an exit code: 0 done, 1 not done."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from proxy.codex.adoption import Adoption, State
from proxy.codex.edit import KEY
from proxy.codex.evidence import CONFIG_NAME, adoption, codex_home, last_turn, read_codex
from proxy.codex.files import Disk, Files
from proxy.codex.note import Note, read_note
from proxy.codex.probe import base_url, port_of, problem_at, running_url
from proxy.codex.processes import Walk
from proxy.codex.reading import Reading
from proxy.codex.route import connect, disconnect
from proxy.errors import ConfigError, RoutingError
from proxy.keys import KeyRing

_PROVIDER: Final = """\
model_provider = "turnlane"

[model_providers.turnlane]
name = "turnlane"
base_url = "{url}/v1"
wire_api = "responses"
requires_openai_auth = true
supports_websockets = true
env_http_headers = {{ "x-turnlane-key" = "TURNLANE_KEY" }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the commands work: turnlane's home and Codex's, and how they reach out."""

    home: Path
    environment: Mapping[str, str]
    files: Files = Disk()  # noqa: RUF009  it has no state
    wall: Callable[[], float] = time.time
    probe: Callable[[int], str | None] = problem_at
    walk: Walk | None = None

    def adoption(self, url: str | None = None) -> Adoption:
        return adoption(
            self.home,
            self.environment,
            self.wall(),
            last_turn(self.home, self.wall()),
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


def on(place: Place, port: int | None) -> int:
    """Point Codex here, once something of ours answers there."""
    try:
        typer.echo(turn_on(place, port))
    except (RoutingError, ConfigError) as error:
        return _failed(error)
    now = place.adoption()
    if now.state is not State.ADOPTED:
        _say(_sentence(now))
    return 0


def turn_on(place: Place, port: int | None) -> str:
    """Raises RoutingError or ConfigError: then nothing has changed."""
    if len(KeyRing(place.home)):
        raise RoutingError(
            f"this turnlane wants a key, and {KEY} has no place for one: "
            "`turnlane codex show` prints the provider to use instead"
        )
    if place.environment.get("CODEX_HOME") and not place.codex.is_dir():
        raise RoutingError(f"CODEX_HOME is {place.codex}, and that is no directory")
    if port is None:
        port = port_of(running_url(place.home))
    if (problem := place.probe(port)) is not None:
        raise RoutingError(problem)
    value = f"{base_url(port)}/v1"
    return connect(place.files, place.home, place.config, value, place.wall)


def off(place: Place) -> int:
    """Put back what stood there; needs neither a running turnlane nor a network."""
    try:
        typer.echo(disconnect(place.files, place.home))
    except RoutingError as error:
        return _failed(error)
    return 0


def show(place: Place, *, as_json: bool) -> int:
    """Where Codex goes, whether the note agrees, and what would go another way."""
    try:
        keys = len(KeyRing(place.home))
    except ConfigError as error:
        return _failed(error)
    url = running_url(place.home)
    reading = read_codex(place.files, place.codex)
    shown: dict[str, Any] = {
        "config": str(place.config),
        "problem": reading.problem,
        "value": reading.value,
        "url": reading.url,
        "note": _note(place, reading),
        "bypasses": reading.bypasses,
        "adoption": asdict(place.adoption(url)),
        "provider": _PROVIDER.format(url=url or base_url(port_of(None))) if keys else None,
    }
    if as_json:
        typer.echo(msgspec.json.encode(shown, enc_hook=str).decode())
    else:
        typer.echo("\n".join(_lines(shown)))
    return 0


def _note(place: Place, reading: Reading) -> dict[str, Any] | None:
    """What is noted about the time before, and whether the configuration agrees with it."""
    try:
        note = read_note(place.files, place.home)
    except RoutingError as error:
        return {"problem": str(error), "agrees": False}
    if note is None:
        return None
    problem = _disagreement(place, reading, note)
    return {
        "config": note.config,
        "value": note.value,
        "previous": note.previous,
        "since": note.wall,
        "phase": note.phase,
        "problem": problem,
        "agrees": problem is None,
    }


def _disagreement(place: Place, reading: Reading, note: Note) -> str | None:
    config = str(place.config)
    if note.config != config:
        return f"it is about {note.config}, and CODEX_HOME now means {config}"
    if note.phase != "done":
        return "connecting was begun and not finished: `turnlane codex on` or `off` settles it"
    if reading.problem is None and reading.value != note.value:
        return f"turnlane wrote {note.value}, which is not there any more"
    return None


def _lines(shown: Mapping[str, Any]) -> list[str]:
    lines = [f"configuration  {shown['config']}"]
    if shown["problem"] is not None:
        lines.append(f"problem        {shown['problem']}")
    else:
        lines.append(f"Codex goes to  {shown['url'] or 'the provider itself'}")
    note = shown["note"]
    if note is None:
        lines.append("note           none: `turnlane codex on` was not used, or is undone")
    elif note["problem"] is not None:
        lines.append(f"note           {note['problem']}")
    else:
        before = "not set" if note["previous"] is None else note["previous"]
        lines.append(f"note           agrees; before, {KEY} was {before}")
    lines += [f"bypass         {text}" for text in shown["bypasses"]]
    lines += _adoption_lines(shown["adoption"])
    if shown["provider"] is not None:
        lines += [
            "",
            "This turnlane wants a key. Put it into the environment as TURNLANE_KEY, and this",
            f"into {shown['config']}, its first line at the top:",
            "",
            shown["provider"].rstrip(),
        ]
    return lines


def _adoption_lines(found: Mapping[str, Any]) -> list[str]:
    lines = [f"adoption       {found['state']}: {found['why']}"]
    for title, clients in (("older", found["stale"]), ("unreadable", found["unreadable"])):
        lines += [f"{title:14} {client['kind']}, pid {client['pid']}" for client in clients]
    return lines


def _sentence(found: Adoption) -> str:
    named = ", ".join(f"{x.pid} ({x.kind})" for x in (*found.stale, *found.unreadable))
    return f"{found.state}: {found.why}" + (f": {named}" if named else "")


def _failed(error: Exception) -> int:
    _say(str(error))
    return 1


def _say(text: str) -> None:
    typer.echo(f"turnlane: {text}", err=True)
