"""`turnlane codex on`, `off` and `show`; each returns an exit code: 0 done, 1 not done.

`off` needs neither a running turnlane nor a network, so it loads nothing that speaks to either.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import typer

from proxy.cli.common import print_json, say
from proxy.codex.connect import disconnect, leftover, with_leftover
from proxy.codex.files import Disk
from proxy.codex.place import Environment, turn_on
from proxy.codex.reading import CONFIG_NAME, codex_home
from proxy.codex.saved import NOTE_NAME, Note, read_note
from proxy.codex.toml_edit import KEY
from proxy.errors import ConfigError, RoutingError
from proxy.home.lock import holder

if TYPE_CHECKING:
    from proxy.codex.adoption import Adoption
    from proxy.codex.destination import Sight

_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})
"""Hosts that also hear what `turnlane codex on` writes."""
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
    """Connect Codex if a turnlane answers on the port."""
    from proxy.codex.adoption import State, adoption, last_turn
    from proxy.codex.destination import read_sight
    from proxy.control.identity import port_of, running_url

    url = running_url(place.home)
    try:
        if port is None:
            port = port_of(url)
        typer.echo(turn_on(place, port))
    except (RoutingError, ConfigError) as error:
        return _failed(error)
    if url is None or port_of(url) != port:
        say(f"the turnlane on port {port} does not use {place.home}: it has another TURNLANE_HOME")
    sight = read_sight(place, here=url)
    if (profile := sight.reading.profile) is not None:
        say(f"{place.config} sets profile = {profile!r}, and Codex 0.171 refuses to start with it")
    seen = last_turn(place.home, place.wall(), running=url is not None)
    now = adoption(place, sight, seen)
    if now.state is not State.ADOPTED:
        say(_sentence(now))
    return 0


def off(place: Environment) -> int:
    """Restore what was there before."""
    try:
        noted = place.files.read(place.home / NOTE_NAME) is not None
        said = disconnect(place.files, place.home)
    except (RoutingError, OSError) as error:
        return _failed(with_leftover(place.files, place.home, place.codex, error))
    if lines := leftover(place.files, place.codex, root_key=not noted):
        return _failed(
            RoutingError(f"turnlane did not write the setting that connects Codex; {lines}")
        )
    typer.echo(said)
    return 0


def show(place: Environment, *, as_json: bool) -> int:
    """Print where Codex goes, whether the note agrees, and what would go another way."""
    from proxy.codex.adoption import adoption, last_turn
    from proxy.codex.destination import course, look_at
    from proxy.control.identity import base_url, port_of, running_url
    from proxy.keys import KeyRing

    try:
        keys = len(KeyRing(place.home))
    except ConfigError as error:
        return _failed(error)
    url = running_url(place.home)
    held = url is not None or holder(place.home) is not None
    sight = look_at(place, here=url, held=held, hung=held and url is None)
    reading, found = sight.reading, course(sight)
    seen = last_turn(place.home, place.wall(), running=url is not None)
    shown: dict[str, Any] = {
        "config": str(place.config),
        "problem": reading.problem,
        "value": reading.value,
        "url": reading.url,
        "note": _note(sight),
        "bypasses": reading.bypasses,
        "profile": reading.profile,
        "way": found.way,
        "said": found.said,
        "mend": found.mend,
        "answered": found.answered,
        "serving": url is not None,
        "adoption": asdict(adoption(place, sight, seen)),
        "provider": _PROVIDER.format(url=url or base_url(port_of(None))) if keys else None,
    }
    if as_json:
        print_json(shown)
    else:
        typer.echo("\n".join(_lines(shown)))
    return 0


def _note(sight: "Sight") -> dict[str, Any] | None:
    """Return what the note says, and whether the configuration agrees with it."""
    if sight.note_problem is not None:
        return {"problem": sight.note_problem, "agrees": False}
    if (note := sight.note) is None:
        return None
    problem = _disagreement(sight, note)
    return {
        "config": note.config,
        "value": note.value,
        "previous": note.previous,
        "since": note.wall,
        "phase": note.phase,
        "problem": problem,
        "agrees": problem is None,
    }


def _disagreement(sight: "Sight", note: Note) -> str | None:
    if note.config != sight.config:
        return f"it is about {note.config}, but CODEX_HOME now means {sight.config}"
    if note.phase != "done":
        return "connecting Codex was interrupted; run `turnlane codex on` or `turnlane codex off`"
    if sight.reading.problem is None and sight.reading.value != note.value:
        return f"turnlane wrote {note.value}, which is no longer there"
    return None


def _lines(shown: Mapping[str, Any]) -> list[str]:
    lines = [f"configuration  {shown['config']}"]
    if shown["problem"] is not None:
        lines.append(f"problem        {shown['problem']}")
    else:
        lines.append(f"Codex goes to  {shown['url'] or 'the provider directly'}")
        lines.append(f"which means    it {shown['said']}")
        if shown["mend"] not in {None, "turnlane codex show"}:
            lines.append(f"what helps     {shown['mend']}")
    note = shown["note"]
    if note is None:
        lines.append("note           none: `turnlane codex on` was not used, or has been undone")
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
            "This turnlane requires a key. Set it as TURNLANE_KEY in Codex's environment, and add",
            f"this to {shown['config']}, with its first line at the top:",
            "",
            shown["provider"].rstrip(),
        ]
    return lines


def _adoption_lines(found: Mapping[str, Any]) -> list[str]:
    lines = [f"adoption       {found['state']}: {found['why']}"]
    for title, clients in (("restart", found["stale"]), ("unreadable", found["unreadable"])):
        lines += [f"{title:14} {client['kind']}, pid {client['pid']}" for client in clients]
    return lines


def _sentence(found: "Adoption") -> str:
    named = ", ".join(f"{x.pid} ({x.kind})" for x in (*found.stale, *found.unreadable))
    return found.why + (f": {named}" if named else "")


def _failed(error: Exception) -> int:
    say(str(error))
    return 1


def hint_of_codex(url: str, home: Path, environment: Mapping[str, str], command: str) -> str:
    """Return what to tell the user who started turnlane about connecting Codex; `command` is how
    turnlane is called here."""
    from proxy.control.identity import HOST, base_url
    from proxy.keys import KeyRing

    config = _short(codex_home(environment) / CONFIG_NAME, environment)
    if len(KeyRing(home)):
        return f"To connect Codex, follow the instructions of `{command} codex show`.\n"
    split = urlsplit(url)
    heard = split.hostname in {HOST, *_EVERY_ADDRESS} and split.port is not None
    reached = base_url(split.port) if heard and split.port is not None else url
    if _connected(home) == f"{reached}/v1":
        return f"Codex is connected: {config} points here. `{command} codex off` undoes this.\n"
    by_hand = f'at the top of {config} and restart Codex:\n\n    {KEY} = "{reached}/v1"\n'
    if heard:
        return f"To connect Codex, run `{command} codex on`, or add this line {by_hand}"
    return f"To connect Codex, add this line {by_hand}"


def called(program: str, found: str | None) -> str:
    """Return how turnlane is called, from how this process was started and where PATH leads."""
    if os.path.basename(program) != "turnlane":
        return "turnlane"
    if found is not None and os.path.realpath(found) == os.path.realpath(program):
        return "turnlane"
    return program


def _connected(home: Path) -> str | None:
    """Return what Codex was pointed at from this home."""
    try:
        note = read_note(Disk(), home)
    except RoutingError:
        return None
    return note.value if note is not None and note.phase == "done" else None


def _short(path: Path, environment: Mapping[str, str]) -> str:
    user = environment.get("HOME")
    if user and path.is_relative_to(user):
        return f"~/{path.relative_to(user)}"
    return str(path)
