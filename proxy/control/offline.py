"""What also works without a running turnlane, by opening the home's own files."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from proxy.control.client import NoAnswer, NotRunning, ask, ask_if_running
from proxy.control.commands import AccountCommand, KeyCommand, Request, ShowPast
from proxy.errors import HomeTaken
from proxy.home.lock import locked
from proxy.journal.summary import MOST_RECORDS, Past, past

if TYPE_CHECKING:
    from proxy.config.load import Config

LOCK_AGAIN_SECONDS = 0.05
LOCK_TRIES = 60
"""For another command to be done with the home: 3 s."""

A = TypeVar("A")
Pause = Callable[[float], None]


def ask_about_keys(
    home: Path,
    command: Request[A],
    pause: Pause = time.sleep,
    seconds: float | None = None,
) -> A:
    """Carry out a `KeyCommand`, whether or not a turnlane runs.

    Raises CommandFailed, or ConfigError, also for a home that another process holds.
    """

    def here() -> object:
        from proxy.control.keys import about_keys
        from proxy.keys import KeyRing

        assert isinstance(command, KeyCommand)
        return about_keys(KeyRing(home), command)

    return _ask_or_do(home, command, here, pause, seconds)[0]


def ask_about_accounts(
    home: Path,
    command: Request[A],
    configured: Callable[[], "Config"],
    pause: Pause = time.sleep,
) -> tuple[A, bool]:
    """Carry out an `AccountCommand`, and say whether a turnlane runs. `configured` is called where
    none does, since config.toml may describe accounts. Raises as `ask_about_keys`."""

    def here() -> object:
        from proxy.accounts.credentials.refresh import Refresher
        from proxy.accounts.opening import open_accounts
        from proxy.control.accounts import about_accounts
        from proxy.database import open_database
        from proxy.keys import KeyRing

        assert isinstance(command, AccountCommand)
        config = configured()
        refresher = Refresher(_not_serving, config.upstream.refresh_url)
        with open_database(config.home) as database:
            managed = open_accounts(config, database, refresher, reading=command.reads, anyway=True)
            return about_accounts(managed, KeyRing(home), command)

    return _ask_or_do(home, command, here, pause, None)


def past_of(home: Path, now: float) -> Past:
    """Return the last hour as the process that runs knows it, else as the journal has it.

    Changes no file, which reading a journal in use would. Raises ConfigError for a journal that
    cannot be read.
    """
    answer = ask_if_running(home, ShowPast())
    return past_on_disk(home, now) if answer is None else answer.past


def past_on_disk(home: Path, now: float) -> Past:
    """Return the last hour as the journal has it, without asking. Raises ConfigError."""
    from proxy.journal.store import newest

    return past([record for _, record in newest(home, MOST_RECORDS, untouched=True)], now)


def _ask_or_do(
    home: Path,
    command: Request[A],
    here: Callable[[], object],
    pause: Pause,
    seconds: float | None,
) -> tuple[A, bool]:
    """Ask the turnlane that runs, else do it here as soon as the home is free."""
    tries = 0
    while True:
        try:
            return ask(home, command, seconds), True
        except NoAnswer:
            raise
        except NotRunning:
            if command.reads:
                return _answer(command, here()), False
        try:
            with locked(home):
                return _answer(command, here()), False
        except HomeTaken:
            tries += 1
            if tries == LOCK_TRIES:
                raise
        pause(LOCK_AGAIN_SECONDS)


async def _not_serving(  # noqa: ASYNC124  what it stands in for is async
    url: str, body: Mapping[str, str]
) -> tuple[int, bytes]:
    raise ConnectionError("only a process that serves refreshes tokens")


def _answer(command: Request[A], found: object) -> A:
    assert isinstance(found, command.answer_type)
    return found
