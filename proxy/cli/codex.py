"""`turnlane codex on`, `off` and `show`; each returns an exit code: 0 done, 1 not done."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import msgspec
import typer

from proxy.codex.adoption import Adoption, State
from proxy.codex.connect import disconnect, leftover, with_leftover
from proxy.codex.destination import course, look_at
from proxy.codex.evidence import read_codex
from proxy.codex.place import Environment, turn_on
from proxy.codex.reading import Reading
from proxy.codex.saved import NOTE_NAME, Note, read_note
from proxy.codex.toml_edit import KEY
from proxy.control.identity import base_url, port_of, running_url
from proxy.errors import ConfigError, RoutingError
from proxy.home.lock import holder
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


def on(place: Environment, port: int | None) -> int:
    """Point Codex here, once something of ours answers there."""
    url = running_url(place.home)
    try:
        if port is None:
            port = port_of(url)
        typer.echo(turn_on(place, port))
    except (RoutingError, ConfigError) as error:
        return _failed(error)
    if url is None or port_of(url) != port:
        _say(f"the turnlane on port {port} has another home than {place.home} (TURNLANE_HOME)")
    profile = read_codex(place.files, place.codex).profile
    if profile is not None:
        _say(f"{place.config} has profile = {profile!r} at its root: Codex 0.171 refuses to start")
    now = place.adoption(url)
    if now.state is not State.ADOPTED:
        _say(_sentence(now))
    return 0


def off(place: Environment) -> int:
    """Put back what stood there; needs neither a running turnlane nor a network."""
    try:
        noted = place.files.read(place.home / NOTE_NAME) is not None
        said = disconnect(place.files, place.home)
    except (RoutingError, OSError) as error:
        return _failed(with_leftover(place.files, place.home, place.codex, error))
    if lines := leftover(place.files, place.codex, root_key=not noted):
        return _failed(RoutingError(f"`turnlane codex on` did not write this: {lines}"))
    typer.echo(said)
    return 0


def show(place: Environment, *, as_json: bool) -> int:
    """Where Codex goes, whether the note agrees, and what would go another way."""
    try:
        keys = len(KeyRing(place.home))
    except ConfigError as error:
        return _failed(error)
    url = running_url(place.home)
    held = url is not None or holder(place.home) is not None
    hung = held and url is None
    sight = look_at(
        place.files, place.home, place.codex, here=url, held=held, hung=hung, asks=place.asks
    )
    reading, found = sight.reading, course(sight)
    shown: dict[str, Any] = {
        "config": str(place.config),
        "problem": reading.problem,
        "value": reading.value,
        "url": reading.url,
        "note": _note(place, reading),
        "bypasses": reading.bypasses,
        "profile": reading.profile,
        "way": found.way,
        "said": found.said,
        "mend": found.mend,
        "answered": found.answered,
        "serving": url is not None,
        "adoption": asdict(place.adoption(url)),
        "provider": _PROVIDER.format(url=url or base_url(port_of(None))) if keys else None,
    }
    if as_json:
        typer.echo(msgspec.json.encode(shown, enc_hook=str).decode())
    else:
        typer.echo("\n".join(_lines(shown)))
    return 0


def _note(place: Environment, reading: Reading) -> dict[str, Any] | None:
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


def _disagreement(place: Environment, reading: Reading, note: Note) -> str | None:
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
        lines += _way_lines(shown)
    note = shown["note"]
    if note is None:
        lines.append("note           none: `turnlane codex on` was not used, or is undone")
    elif note["problem"] is not None:
        lines.append(f"note           {note['problem']}")
    else:
        before = "not set" if note["previous"] is None else note["previous"]
        lines.append(f"note           agrees; before, {KEY} was {before}")
    if shown["profile"] is not None:
        lines.append(f"profile        {shown['profile']!r}: Codex 0.171 refuses to start with it")
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


def _way_lines(shown: Mapping[str, Any]) -> list[str]:
    """Whether that works."""
    lines = [f"which means    it {shown['said']}"]
    if shown["mend"] not in {None, "turnlane codex show"}:
        lines.append(f"what helps     {shown['mend']}")
    return lines


def _adoption_lines(found: Mapping[str, Any]) -> list[str]:
    lines = [f"adoption       {found['state']}: {found['why']}"]
    for title, clients in (("older", found["stale"]), ("unreadable", found["unreadable"])):
        lines += [f"{title:14} {client['kind']}, pid {client['pid']}" for client in clients]
    return lines


def _sentence(found: Adoption) -> str:
    named = ", ".join(f"{x.pid} ({x.kind})" for x in (*found.stale, *found.unreadable))
    return found.why + (f": {named}" if named else "")


def _failed(error: Exception) -> int:
    _say(str(error))
    return 1


def _say(text: str) -> None:
    typer.echo(f"turnlane: {text}", err=True)
