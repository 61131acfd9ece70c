"""Point Codex's configuration at turnlane, and restore it.

Theory of operation
-------------------
`connect` writes a note of the current configuration, then the configuration, then marks the note as
done. `disconnect` restores the configuration and then removes the note. Each step is one atomic
replacement, so after a kill the configuration is either the original or the one that turnlane
wrote, and in the second case the note exists. Restoring depends on what the file contains, not on
how far an earlier command got, so it can be repeated at any time.

A leftover is a line that leads Codex to this machine without a usable note.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from proxy.codex.files import Disk
from proxy.codex.reading import BUILT_IN, CONFIG_NAME, OURS, is_local, read_codex
from proxy.codex.saved import LOCK_NAME, NOTE_NAME, Note, drop_note, held, keep_note, read_note
from proxy.codex.toml_edit import (
    KEY,
    NotToml,
    lines_setting,
    lines_with,
    parse,
    with_value,
    without_value,
)
from proxy.errors import RoutingError
from proxy.files import beside


def connect(files: Disk, home: Path, config: Path, value: str, wall: Callable[[], float]) -> str:
    """Point the configuration at `value`, and return a sentence about it.

    Raises RoutingError, in which case nothing has changed.
    """
    try:
        with held(home):
            note = read_note(files, home)
            if note is not None and note.config != str(config):
                raise RoutingError(
                    f"this home has connected {note.config}; run `turnlane codex off` first"
                )
            if note is not None:
                if note.value == value and _value(files, config) == value:
                    _finish(files, home, note, wall)
                    return f"{config} already points at {value}"
                _restore(files, home, note)
            _write(files, home, config, value, wall)
            return f"{config} now points at {value}"
    except OSError as error:
        raise RoutingError(f"{config} cannot be changed: {_why(error)}") from error


def disconnect(files: Disk, home: Path) -> str:
    """Restore the configuration, and return a sentence about it.

    Raises RoutingError, in which case the note is kept.
    """
    try:
        if files.read(home / NOTE_NAME) is None and not home.is_dir():
            return "turnlane has not connected Codex: there is nothing to restore"
        with held(home):
            note = read_note(files, home)
            if note is None:
                drop_note(files, home)  # and a temporary file that a kill may have left
                return "turnlane has not connected Codex: there is nothing to restore"
            return _restore(files, home, note)
    except OSError as error:
        raise RoutingError(f"the configuration cannot be restored: {_why(error)}") from error


def settle(files: Disk, home: Path) -> None:
    """Restore a configuration whose connection was interrupted. Raises RoutingError."""
    note = read_note(files, home)
    if note is not None and note.phase == "intent":
        disconnect(files, home)


def _write(files: Disk, home: Path, config: Path, value: str, wall: Callable[[], float]) -> None:
    files.make_directory(config.parent)
    target = files.resolve(config)
    original = files.read(target)
    try:
        written = with_value(original, value)
        previous = parse(original).get(KEY)
        for path in (config, target):
            str(path).encode()  # the note is UTF-8
    except NotToml as error:
        raise RoutingError(f"{config} was not changed: {error}") from error
    except UnicodeEncodeError as error:
        raise RoutingError(f"the path {str(config)!r} is not valid UTF-8") from error
    note = Note(
        config=str(config),
        target=str(target),
        original=original,
        previous=previous,
        value=value,
        written_sha256=_hash(written),
        wall=wall(),
        phase="intent",
    )
    try:
        keep_note(files, home, note)
        _swap(files, target, original, written)
        _finish(files, home, note, wall)
    except OSError:
        with suppress(OSError, RoutingError):
            _restore(files, home, note)
        raise


def _finish(files: Disk, home: Path, note: Note, wall: Callable[[], float]) -> None:
    """Mark a note as done. The time is taken after the write, so that a client which started
    meanwhile counts as older."""
    if note.phase == "intent":
        keep_note(files, home, msgspec.structs.replace(note, wall=wall(), phase="done"))


def _restore(files: Disk, home: Path, note: Note) -> str:
    """Restore the configuration, and remove the note once nothing of ours is left.

    A client that replaced a link by a file has turned one place into two: both are restored.
    """
    said: list[str] = []
    problems: list[str] = []
    for path in dict.fromkeys((files.resolve(Path(note.config)), Path(note.target))):
        files.unlink(beside(path))
        try:
            said.append(_restore_one(files, path, note))
        except NotToml as error:
            problems.append(str(error))
    if problems:
        raise RoutingError("; ".join(problems))
    drop_note(files, home)
    return "; ".join(said)


def _restore_one(files: Disk, path: Path, note: Note) -> str:
    """Restore one file. Raises NotToml with what its owner has to do by hand."""
    current = files.read(path)
    if current == note.original:
        return _as_before(path, note)
    if current is None:
        return f"{path} no longer exists: there is nothing to restore"
    if _hash(current) == note.written_sha256:
        if note.original is None:
            files.unlink(path)
        else:
            _swap(files, path, current, note.original)
        return _as_before(path, note)
    try:
        value = parse(current).get(KEY)
        if value == note.previous or value is None:
            return _as_before(path, note)
        if value != note.value:
            return f"{path} now sets {KEY} = {value!r}, which is kept"
        _swap(files, path, current, without_value(current, note.previous))
    except NotToml as error:
        numbers = lines_with(current, note.value)
        if not numbers:  # nothing of ours is left in it
            return f"{path} is not valid TOML ({error}), but {note.value} is no longer in it"
        raise NotToml(_by_hand(path, note, numbers, error)) from error
    return f"{path} was changed since: only {KEY} is restored, the rest is kept"


def _as_before(path: Path, note: Note) -> str:
    if note.previous is None:
        return f"{path} is restored"
    return f"{path} is restored, with its own {KEY} = {note.previous!r}"


def _by_hand(path: Path, note: Note, numbers: tuple[int, ...], error: NotToml) -> str:
    lines = ", ".join(map(str, numbers))
    instead = "" if note.previous is None else f" (it was {KEY} = {note.previous!r} before)"
    return (
        f"{path} cannot be edited: {error}. Remove {note.value} in line {lines}{instead}, then run "
        "`turnlane codex off` again"
    )


def _swap(files: Disk, path: Path, expected: bytes | None, content: bytes) -> None:
    """Replace a file if it still has the expected content. Raises OSError."""
    fresh = files.write_beside(path, content, like=True)
    if files.read(path) != expected:
        files.unlink(fresh)
        raise OSError(f"{path} was changed at the same moment; try again")
    files.replace(fresh, path)


def _value(files: Disk, config: Path) -> object:
    try:
        return parse(files.read(files.resolve(config))).get(KEY)
    except NotToml:
        return None


def _why(error: OSError) -> str:
    """Name the folder rather than a file that turnlane writes beside another: only the folder can
    be fixed."""
    named = os.fsdecode(error.filename or "")
    if not isinstance(error, PermissionError) or not named.endswith((".turnlane", LOCK_NAME)):
        return str(error)
    folder = Path(named).parent
    return f"{folder} is not writable; run `chmod u+rwx {folder}`"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def leftover(files: Disk, where: Path, *, root_key: bool = True) -> str | None:
    """Say which line of the configuration in Codex's home its owner has to remove, if there is one.
    Without `root_key`, the root key is what its owner had before, and stays."""
    reading, config = read_codex(files, where), where / CONFIG_NAME
    if reading.url is None or not is_local(reading.url):
        return None
    if reading.provider not in ({BUILT_IN, OURS} if root_key else {OURS}):
        return None
    key = KEY if reading.provider == BUILT_IN else "model_provider"
    numbers: tuple[int, ...] = ()
    with suppress(OSError):
        numbers = lines_setting(files.read(files.resolve(config)) or b"", key)
    line = f"line {numbers[0]} of {config}" if numbers else f"{key} from {config}"
    return f"remove {line}, which leads Codex to {reading.url}"


def with_leftover(files: Disk, home: Path, where: Path, error: Exception) -> RoutingError:
    """Return the error, and what to do if the note cannot be used."""
    note = home / NOTE_NAME
    try:
        read_note(files, home)
    except RoutingError:
        line = leftover(files, where)
        return RoutingError(f"{error}; {f'{line}, then move' if line else 'move'} {note} away")
    return RoutingError(str(error))
