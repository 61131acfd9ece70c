"""Config: file, environment and flags, read once into one frozen value.

The defaults are those of the settings' own classes. The limits of admission are `lifecycle.Limits`,
whose TOML names are in `_LIMIT_KEYS`.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, get_type_hints

from lifecycle import Limits, WorkflowLimits
from proxy.accounts.route import RoutingSettings
from proxy.accounts.spec import AccountSpec, account_id, with_paths
from proxy.accounts.view import AccountId
from proxy.config.convert import built, convert, from_table
from proxy.config.settings import ClientSettings, ServerSettings, UpstreamSettings
from proxy.errors import ConfigError
from proxy.home.lock import home_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration of one process."""

    server: ServerSettings = field(default_factory=ServerSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    limits: Limits = field(default_factory=Limits)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    accounts: Mapping[AccountId, AccountSpec] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The variables of the environment that accounts refer to."""
    home: Path = Path("turnlane-home")


_LIMIT_KEYS: Final = MappingProxyType(
    {
        "turns": MappingProxyType({"limit": "turns"}),
        "lanes": MappingProxyType(
            {
                "limit": "lanes",
                "kept": "lanes_kept",
                "overlap": "overlap",
                "settle_seconds": "settle_seconds",
                "client_gone_seconds": "client_gone_seconds",
            }
        ),
        "websockets": MappingProxyType({"limit": "websockets"}),
        "memory": MappingProxyType({"limit_bytes": "memory_bytes"}),
    }
)
_SECTIONS: Final = MappingProxyType(
    {
        "server": ServerSettings,
        "client": ClientSettings,
        "upstream": UpstreamSettings,
        "workflow": WorkflowLimits,
        "routing": RoutingSettings,
        "accounts": dict,
    }
)
_MAY_BE_ZERO: Final = frozenset(
    {
        "server.port",
        "server.drain_seconds",
        "client.outbox_bytes",
        "client.discard_seconds",
        "routing.cache_affinity",
        "routing.rescore_seconds",
    }
)
"""The settings that may be 0. A deadline of 0 would fail every turn, and a task with an interval of
0 would never pause."""
_BASE_URL: Final = re.compile(
    r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/[^\s?#]*)?", re.ASCII
)


def load(
    path: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Mapping[str, object]],
    *,
    offline: bool = False,
) -> Config:
    """Read the file, then the environment, then flags (`{section: {key: value}}`); later ones win.
    With `offline` no account serves now, so the variables that accounts refer to need not be set.

    Raises ConfigError for the first key that is wrong.
    """
    tables = read(path) if path is not None else {}
    return build(tables, path, environment, flags, offline=offline)


def build(
    tables: dict[str, dict[str, Any]],
    path: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Mapping[str, object]],
    *,
    offline: bool = False,
) -> Config:
    """Build the configuration from the tables of the file at `path`. Raises ConfigError."""
    for section, values in tables.items():
        if section not in _SECTIONS and section not in _LIMIT_KEYS:
            raise ConfigError(section, f"unknown section; valid sections are {_names()}")
        if not isinstance(values, dict):
            raise ConfigError(section, f"must be a table, as in [{section}]")
    tables = {section: dict(values) for section, values in tables.items()}
    if url := environment.get("TURNLANE_UPSTREAM"):
        tables.setdefault("upstream", {})["url"] = url
    for section, changed in flags.items():
        tables.setdefault(section, {}).update(changed)
    accounts = _accounts(
        tables.get("accounts", {}), Path() if path is None else path.absolute().parent
    )
    config = Config(
        home=home_of(environment),
        routing=from_table(RoutingSettings, "routing", tables),
        accounts=accounts,
        secrets=_secrets(accounts, environment, offline=offline),
        limits=_limits(tables),
        server=from_table(ServerSettings, "server", tables),
        client=from_table(ClientSettings, "client", tables),
        upstream=from_table(UpstreamSettings, "upstream", tables),
    )
    _check(config)
    return config


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the tables of a file as they are written. Raises ConfigError if it cannot be read."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not valid TOML: {error}") from error


def _names() -> str:
    return ", ".join(sorted({*_SECTIONS, *_LIMIT_KEYS}))


def _limits(tables: Mapping[str, Mapping[str, object]]) -> Limits:
    hints = get_type_hints(Limits)
    values: dict[str, Any] = {"workflow": from_table(WorkflowLimits, "workflow", tables)}
    written: dict[str, str] = {}
    for section, keys in _LIMIT_KEYS.items():
        for key, value in tables.get(section, {}).items():
            if key not in keys:
                raise ConfigError(
                    f"{section}.{key}", f"unknown key; valid keys are {', '.join(keys)}"
                )
            name = keys[key]
            written[name] = f"{section}.{key}"
            values[name] = convert(written[name], value, hints[name])
    return built(Limits, values, written)


def _accounts(tables: Mapping[str, object], folder: Path) -> dict[AccountId, AccountSpec]:
    """Read the accounts; their paths are relative to the `folder` of the file."""
    found = {}
    for name, table in tables.items():
        key = f"accounts.{name}"
        if not isinstance(table, dict):
            raise ConfigError(key, "must be a table, as in [accounts.NAME]")
        try:
            account = account_id(name)
        except ValueError as error:
            raise ConfigError(key, str(error)) from error
        spec = from_table(AccountSpec, key, {key: table})
        check_url(f"{key}.url", spec.url)
        found[account] = with_paths(spec, lambda path: folder / path.expanduser())
    return found


def _secrets(
    accounts: Mapping[AccountId, AccountSpec], environment: Mapping[str, str], *, offline: bool
) -> dict[str, str]:
    """Read the variables that accounts refer to. Raises ConfigError for one that is not set."""
    found = {}
    for account, spec in accounts.items():
        kind, _, name = (spec.key or "").partition(":")
        if kind == "env":
            if not environment.get(name) and not offline:
                raise ConfigError(
                    f"accounts.{account}.key", f"the environment variable {name} is not set"
                )
            found[name] = environment.get(name, "")
    return found


def _check(config: Config) -> None:
    for name in ("server", "client", "upstream", "routing"):
        part = getattr(config, name)
        for item in fields(part):
            key, value = f"{name}.{item.name}", getattr(part, item.name)
            if isinstance(value, int | float) and value <= 0:
                if key not in _MAY_BE_ZERO:
                    raise ConfigError(key, "must be greater than 0")
                if value < 0:
                    raise ConfigError(key, "must not be negative")
    if config.server.port > 65535:
        raise ConfigError("server.port", "must be between 0 and 65535")
    if not 0 < config.routing.auto_switch_threshold <= 100:
        raise ConfigError("routing.auto_switch_threshold", "must be greater than 0 and at most 100")
    if config.routing.auto_switch_threshold <= 1:
        raise ConfigError("routing.auto_switch_threshold", "is a percentage: write 80, not 0.8")
    check_url("upstream.url", config.upstream.url)
    check_url("upstream.refresh_url", config.upstream.refresh_url)


def check_url(key: str, url: str | None) -> None:
    """Raise ConfigError for a value that is not a base URL."""
    if url is not None and not _BASE_URL.fullmatch(url):
        raise ConfigError(key, "must be a base URL: http:// or https://, a host, and no query")
