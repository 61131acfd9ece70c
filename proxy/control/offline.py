"""Commands that work without a running turnlane too, by opening the home's files."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proxy.accounts.credentials.refresh import Refresher
from proxy.accounts.opening import open_accounts
from proxy.config.load import Config
from proxy.control.client import (
    ANSWER_SECONDS,
    LOOK_SECONDS,
    READING,
    Answer,
    NoAnswer,
    NotRunning,
    ask,
)
from proxy.control.commands import _about_accounts, about_keys
from proxy.database import open_database
from proxy.errors import HomeTaken
from proxy.home.lock import locked
from proxy.keys import KeyRing

LOCK_AGAIN_SECONDS = 0.05
LOCK_TRIES = 60
"""For another command to be done with the home: 3 s."""
Pause = Callable[[float], None]


def ask_about_keys(
    home: Path,
    command: Mapping[str, Any],
    pause: Pause = time.sleep,
    seconds: float | None = None,
) -> Answer:
    """A command about keys, whether or not a turnlane runs. Raises ConfigError; so does a home that
    somebody else holds."""

    def here() -> Answer:
        return about_keys(KeyRing(home), command)

    return _ask_or_do(home, command, here, pause, seconds)


def ask_about_accounts(
    home: Path,
    command: Mapping[str, Any],
    configured: Callable[[], Config],
    pause: Pause = time.sleep,
) -> Answer:
    """The same about accounts. `configured` is called where none runs: an account may be described
    by config.toml. `running` in the answer says whether one does. Raises ConfigError."""

    def here() -> Answer:
        reading = command["command"] in READING
        config = configured()
        refresher = Refresher(_not_serving, config.upstream.refresh_url)
        with open_database(config.home) as database:
            managed = open_accounts(config, database, refresher, reading=reading, anyway=True)
            return {**_about_accounts(managed, KeyRing(home), command), "running": False}

    return {"running": True, **_ask_or_do(home, command, here, pause, None)}


def _ask_or_do(
    home: Path,
    command: Mapping[str, Any],
    here: Callable[[], Answer],
    pause: Pause,
    seconds: float | None,
) -> Answer:
    """By the turnlane that runs, else here, as soon as the home is free."""
    if seconds is None:
        seconds = LOOK_SECONDS if command["command"] in READING else ANSWER_SECONDS
    tries = 0
    while True:
        try:
            return ask(home, command, seconds)
        except NoAnswer as error:
            return {"error": str(error)}
        except NotRunning:
            if command["command"] in READING:
                return here()
        try:
            with locked(home):
                return here()
        except HomeTaken:
            tries += 1
            if tries == LOCK_TRIES:
                raise
        pause(LOCK_AGAIN_SECONDS)


async def _not_serving(url: str, body: Mapping[str, str]) -> tuple[int, bytes]:
    raise ConnectionError("only a process that serves refreshes tokens")
