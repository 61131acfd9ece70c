"""`turnlane check`: everything that is wrong with a configuration, not only what stops it first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from proxy.accounts.opening import inspect_accounts
from proxy.cli.common import say
from proxy.config.load import Config, build, read
from proxy.errors import ConfigError


def check_config(path: Path | None, environment: Mapping[str, str]) -> int:
    """Print what is wrong; the exit code is 2 if anything is."""
    config, problems = salvage(path, environment)
    if config is not None and not problems:
        try:
            for warning in inspect_accounts(config):
                say(warning)
        except ConfigError as error:
            problems = [error]
    for problem in problems:
        say(str(problem))
    if config is None or problems:
        return 2
    where = config.upstream.url or "the provider of each client's own login"
    server = f"{config.server.host}:{config.server.port}"
    file = "no file, all defaults" if path is None else str(path)
    typer.echo(f"the configuration is valid ({file}): {server} -> {where}")
    return 0


def salvage(
    path: Path | None, environment: Mapping[str, str]
) -> tuple[Config | None, list[ConfigError]]:
    """Return what is left of a configuration without all that is wrong, and what that is."""
    problems: list[ConfigError] = []
    tables: dict[str, dict[str, Any]] = {}
    environment = dict(environment)
    try:
        tables = read(path) if path is not None else {}
    except ConfigError as error:
        return None, [error]
    while True:
        try:
            return build(tables, path, environment, {}), problems
        except ConfigError as error:
            if not any(problem.key.startswith(f"{error.key}.") for problem in problems):
                problems.append(error)  # else it is what is left of an account without its key
            if not _without(tables, environment, error.key):
                return None, problems


def _without(tables: dict[str, dict[str, Any]], environment: dict[str, str], key: str) -> bool:
    """Take out what was complained about; return whether it was there."""
    if key == "upstream.url" and environment.get("TURNLANE_UPSTREAM"):
        del environment["TURNLANE_UPSTREAM"]
        return True
    if key in tables:
        del tables[key]
        return True
    section, _, name = key.partition(".")
    inner: dict[str, Any] = tables.get(section, {})
    while name not in inner and "." in name:
        outer, _, name = name.partition(".")
        inner = inner.get(outer, {})
    if name not in inner:
        return False
    del inner[name]
    return True
