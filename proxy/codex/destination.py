"""The place where Codex's turns really end up, and what helps where they do not work.

The adoption says which clients have read the configuration; this says whether what is in it works:
an address may be one where nothing answers, or a turnlane that requires a key, or that of another
home. `read_sight` and `look_at` gather what there is to see, from two homes and an address, and
only read; `course` decides, and is pure.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never
from urllib.parse import urlsplit

from proxy.codex.place import Environment
from proxy.codex.reading import BUILT_IN, OURS, Reading, is_local, is_same_place, read_codex
from proxy.codex.saved import Note, read_note
from proxy.control.identity import Answerer
from proxy.errors import ConfigError, RoutingError
from proxy.keys import KeyRing


class Destination(StrEnum):
    HERE = "here"
    NO_KEY = "no-key"
    """The configuration leads here, but sends no key, which is required."""
    NOBODY = "nobody"
    """It leads to a turnlane, and none answers there."""
    ANOTHER = "another-home"
    PROVIDER = "own-provider"
    """A provider of the user's own decides, whatever else is configured."""
    ELSEWHERE = "elsewhere"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """`note` is the note in this home, or `note_problem` says why it cannot be used. `here` is the
    base URL of this home's turnlane, if that runs and says so. `held` is whether a process has the
    home, so that a turnlane may be its own. `answered` is None where no one was asked, as for an
    address that is not of this machine."""

    reading: Reading
    config: str = ""
    note: Note | None = None
    note_problem: str | None = None
    here: str | None = None
    held: bool = False
    answered: Answerer | None = None
    keys: bool = False

    @property
    def noted(self) -> Note | None:
        """The note, if it is about this configuration."""
        return self.note if self.note is not None and self.note.config == self.config else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Where Codex goes. `said` is a sentence about Codex without its subject, `mend` the command
    that helps, or what else to do."""

    way: Destination
    said: str = ""
    mend: str | None = None
    answered: Answerer | None = None


def course(sight: Sight) -> Course:
    """Judge where Codex goes."""
    way = _way(sight)
    said, mend = _words(way, sight)
    return Course(way=way, said=said, mend=mend, answered=sight.answered)


def _way(sight: Sight) -> Destination:
    reading = sight.reading
    own = Destination.ELSEWHERE if reading.provider == BUILT_IN else Destination.PROVIDER
    if reading.problem is not None:
        return Destination.UNREADABLE
    if reading.url is None or not (_is_here(sight) or is_local(reading.url)):
        return own
    if _is_here(sight) or (sight.answered is Answerer.TURNLANE and _may_be_ours(sight)):
        return (
            Destination.NO_KEY if sight.keys and reading.provider == BUILT_IN else Destination.HERE
        )
    if sight.answered is Answerer.TURNLANE:
        return Destination.ANOTHER
    noted = sight.noted is not None and sight.noted.value == reading.url
    if noted or (sight.answered is Answerer.NOBODY and reading.provider in {BUILT_IN, OURS}):
        return Destination.NOBODY
    return own


def _is_here(sight: Sight) -> bool:
    url = sight.reading.url
    return url is not None and sight.here is not None and is_same_place(url, f"{sight.here}/v1")


def _may_be_ours(sight: Sight) -> bool:
    return sight.held and sight.here is None


def _words(way: Destination, sight: Sight) -> tuple[str, str | None]:
    """Return what is said about Codex, and what helps."""
    url, provider, other = sight.reading.url, sight.reading.provider, Answerer.OTHER
    show, off = "turnlane codex show", "turnlane codex off"
    connect = show if sight.keys else "turnlane codex on"
    match way:
        case Destination.HERE:
            return "goes through turnlane", None
        case Destination.NO_KEY:
            return "points at turnlane without the key that it requires", show
        case Destination.NOBODY:
            who = "another program" if sight.answered is other else "no turnlane"
            mend = f"turnlane serve --port {urlsplit(url or '').port or 80}, or {off}"
            if sight.here is not None:
                mend = f"{connect}, or {off}"
            elif sight.answered is other or sight.held:
                mend = off
            return f"points at {url}, where {who} answers", mend
        case Destination.ANOTHER:
            said = f"goes through a turnlane with another home (TURNLANE_HOME), at {url}"
            return said, "set TURNLANE_HOME to its home" if sight.here is None else connect
        case Destination.PROVIDER:
            where = url or "an address of its own"
            return f"follows model_provider {provider}, which leads to {where}", show
        case Destination.ELSEWHERE:
            strange = ", which is not a turnlane" if sight.answered is other else ""
            said = "goes directly to the provider" if url is None else f"goes to {url}{strange}"
            none_here = sight.here is None and not sight.keys  # `serve --codex` cannot send a key
            return said, "turnlane serve --codex" if none_here else connect
        case Destination.UNREADABLE:
            return f"has a configuration that cannot be read: {sight.reading.problem}", None
        case _:
            assert_never(way)


def read_sight(place: Environment, *, here: str | None, held: bool = False) -> Sight:
    """Read what the two homes hold, without raising. `here` and `held` are as in `Sight`."""
    note, note_problem, keys = None, None, False
    with suppress(ConfigError):  # with keys that cannot be read, turnlane does not start
        keys = len(KeyRing(place.home)) > 0
    try:
        note = read_note(place.files, place.home)
    except RoutingError as error:
        note_problem = str(error)
    return Sight(
        reading=read_codex(place.files, place.codex, here),
        config=str(place.config),
        note=note,
        note_problem=note_problem,
        here=here,
        held=held,
        keys=keys,
    )


def look_at(place: Environment, *, here: str | None, held: bool, hung: bool = False) -> Sight:
    """Read the two homes and ask what answers where Codex goes, without raising. `hung` says that
    this home's turnlane did not answer before, so it is not asked again."""
    seen = read_sight(place, here=here, held=held)
    url = seen.reading.url
    if url is None or not is_local(url) or _is_here(seen):
        return seen
    known = hung and seen.noted is not None and seen.noted.value == url
    return replace(seen, answered=Answerer.NOBODY if known else place.ask(url).by)
