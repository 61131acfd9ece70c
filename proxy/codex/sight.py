"""Sight: what there is to be seen of Codex's way, from two homes and an address; reads only."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from proxy.codex.course import Sight, needs_asking
from proxy.codex.evidence import CONFIG_NAME, read_codex
from proxy.codex.files import Files
from proxy.codex.note import Note, read_note
from proxy.codex.probe import Answerer, answerer_at
from proxy.errors import ConfigError, RoutingError
from proxy.keys import KeyRing

Asks = Callable[[str], Answerer]


def look_at(
    files: Files,
    home: Path,
    where: Path,
    *,
    here: str | None,
    held: bool,
    hung: bool = False,
    asks: Asks = answerer_at,
) -> Sight:
    """`where` is Codex's home; `here` and `held` are as in `Sight`; `hung` says that this home's
    turnlane did not answer, so that it need not be waited for again. Raises nothing."""
    seen = Sight(
        reading=read_codex(files, where, here),
        note=_note_about(files, home, where / CONFIG_NAME),
        here=here,
        held=held,
        keys=has_keys(home),
    )
    url = seen.reading.url
    if url is None or not needs_asking(seen):
        return seen
    known = hung and seen.note is not None and seen.note.value == url
    return replace(seen, answered=Answerer.NOBODY if known else asks(url))


def has_keys(home: Path) -> bool:
    """Whether callers need one. A file that cannot be read keeps turnlane from starting."""
    try:
        return len(KeyRing(home)) > 0
    except ConfigError:
        return False


def _note_about(files: Files, home: Path, config: Path) -> Note | None:
    try:
        note = read_note(files, home)
    except RoutingError:
        return None
    return note if note is not None and note.config == str(config) else None
