"""Evidence: what can be known now about Codex's routing and its running clients; reads only."""

import os
from collections.abc import Mapping
from pathlib import Path

from proxy.codex.adoption import Adoption, CodexRoute, Evidence, judge
from proxy.codex.files import Disk, Files
from proxy.codex.processes import Found, Walk, find_clients
from proxy.codex.reading import Reading, is_local, is_same_place, read_config
from proxy.codex.saved import Note, read_note
from proxy.control.history import past_of, past_on_disk
from proxy.errors import ConfigError, RoutingError

CONFIG_NAME = "config.toml"
PROFILE_SUFFIX = ".config.toml"
MOST_PROFILES = 64


def codex_home(environment: Mapping[str, str]) -> Path:
    """CODEX_HOME, else ~/.codex; absolute, and a link if it is one."""
    if named := environment.get("CODEX_HOME"):
        return Path(os.path.abspath(named))
    user = Path(environment.get("HOME") or "~").expanduser()
    return Path(os.path.abspath(user / ".codex"))


def adoption(
    home: Path,
    environment: Mapping[str, str],
    wall: float,
    last_turn_seen: float | None,
    *,
    url: str | None = None,
    files: Files | None = None,
    walk: Walk | None = None,
) -> Adoption:
    """How far Codex has taken up the routing to this turnlane. Changes no file, raises nothing.

    `last_turn_seen` is when the last turn came from a client, if one did; `url` is the base URL of
    the turnlane that runs, where the caller knows it.
    """
    where = codex_home(environment)
    routing = find_routing(files or Disk(), home, where, url)
    found = Found((), complete=True)
    if routing.ours:
        resolved, user = Path(os.path.realpath(where)), os.getuid()
        found = find_clients(resolved, user, *(() if walk is None else (walk,)))
    evidence = Evidence(
        routing=routing,
        clients=found.clients,
        walked=found.complete,
        last_turn=last_turn_seen,
        now=wall,
    )
    return judge(evidence)


def last_turn(home: Path, wall: float, *, running: bool = True) -> float | None:
    """When the newest turn began of a client that has threads, as Codex does. One that is known
    not to answer is not asked."""
    try:
        return (past_of if running else past_on_disk)(home, wall).last_turn
    except ConfigError:
        return None


def read_codex(files: Files, where: Path, here: str | None = None) -> Reading:
    """The configuration and the profiles beside it; `here` as for `read_config`."""
    try:
        content = files.read(files.resolve(where / CONFIG_NAME))
        profiles = {
            path.name.removesuffix(PROFILE_SUFFIX): files.read(files.resolve(path)) or b""
            for path in sorted(where.glob(f"?*{PROFILE_SUFFIX}"))[:MOST_PROFILES]
        }
    except OSError as error:
        return Reading(problem=str(error))
    return read_config(content, profiles, here)


def find_routing(files: Files, home: Path, where: Path, url: str | None) -> CodexRoute:
    """Whether Codex's turns go to this turnlane, and since when."""
    reading = read_codex(files, where)
    if reading.problem is not None:
        return CodexRoute(ours=None, why=f"its configuration cannot be read: {reading.problem}")
    if reading.url is None:
        return CodexRoute(ours=False, why="Codex goes to the provider itself")
    try:
        note = read_note(files, home)
    except RoutingError as error:
        return CodexRoute(ours=None, why=str(error))
    if note is not None and note.config != str(where / CONFIG_NAME):
        note = None
    ours = _is_ours(reading.url, note, url)
    if not ours:
        why = f"Codex goes to {reading.url}" + ("" if ours is False else ", which may be turnlane")
        return CodexRoute(ours=ours, why=why)
    if note is not None and note.phase == "done" and reading.value == note.value == reading.url:
        return CodexRoute(ours=True, since=note.wall)
    return CodexRoute(ours=True, since=_changed(where), exact=False)


def _is_ours(points_at: str, note: Note | None, url: str | None) -> bool | None:
    if url is not None:
        return is_same_place(points_at, f"{url}/v1")
    if note is not None and points_at == note.value:
        return True
    return None if is_local(points_at) else False


def _changed(where: Path) -> float | None:
    """When the file was last written: nobody wrote the value later than that."""
    try:
        return (where / CONFIG_NAME).stat().st_mtime
    except OSError:
        return None
