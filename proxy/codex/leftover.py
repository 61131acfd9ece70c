"""Leftover: what leads Codex to this machine and stands in no note that can be used."""

from contextlib import suppress
from pathlib import Path

from proxy.codex.edit import KEY, lines_setting
from proxy.codex.evidence import CONFIG_NAME, read_codex
from proxy.codex.files import Files
from proxy.codex.note import NOTE_NAME, read_note
from proxy.codex.reading import BUILT_IN, OURS, is_local
from proxy.errors import RoutingError


def leftover(files: Files, where: Path, *, root_key: bool = True) -> str | None:
    """Which line of the configuration in Codex's home is to be removed by its owner, if one is.
    Without `root_key` that one is what its owner had before."""
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


def with_leftover(files: Files, home: Path, where: Path, error: Exception) -> RoutingError:
    """The error, with what helps if the note is one that cannot be used."""
    note = home / NOTE_NAME
    try:
        read_note(files, home)
    except RoutingError:
        line = leftover(files, where)
        return RoutingError(f"{error}; {f'{line}, then move' if line else 'move'} {note} away")
    return RoutingError(str(error))
