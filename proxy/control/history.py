"""Past: the last hour of a home, from the process that has it in memory, or from its journal."""

from pathlib import Path

import msgspec

from proxy.control.client import LOOK_SECONDS, NotRunning, ask
from proxy.errors import ConfigError
from proxy.journal.store import newest
from proxy.journal.summary import MOST_RECORDS, Past, past


def past_of(home: Path, now: float) -> Past:
    """Changes no file, which reading a journal in use would. Raises ConfigError for a journal that
    cannot be read."""
    try:
        said = ask(home, {"command": "past"}, LOOK_SECONDS)
        return msgspec.convert(said.get("past"), Past)
    except (NotRunning, ConfigError, msgspec.ValidationError):
        return past_on_disk(home, now)


def past_on_disk(home: Path, now: float) -> Past:
    """The same without asking."""
    records = [record for _, record in newest(home, MOST_RECORDS, untouched=True)]
    return past(records, now)
