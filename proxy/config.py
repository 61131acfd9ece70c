"""Config: file, environment and flags, parsed once into a frozen tree; every default is here.

The numbers of admission stand in `lifecycle.Limits`; `_LIMIT_KEYS` gives them their TOML names.
"""

import ipaddress
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from lifecycle import Limits, WorkflowLimits
from proxy.errors import ConfigError

MIB = 2**20
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`[server]`: where turnlane listens, and for whom."""

    host: str = "127.0.0.1"
    """Loopback: a proxy that holds credentials is nobody else's business by default."""
    port: int = 10110
    """0 picks a free one; the ready line names it."""
    hosts: tuple[str, ...] = ()
    """`Host` names accepted besides loopback's; anything else may be a rebinding page."""
    origins: tuple[str, ...] = ()
    """Browser origins that may speak to turnlane."""
    drain_seconds: float = 10.0
    """How long running turns may go on after SIGTERM."""
    connections: int = 1024
    """Open TCP connections: every turn and WebSocket, and as many again for probes and waits."""
    keep_alive_seconds: float = 300.0
    """An idle HTTP connection is kept for as long as Codex waits for an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`[client]`: what one client may send, and how patient turnlane is with it."""

    body_bytes: int = 64 * MIB
    """One HTTP body or WebSocket frame, decompressed too; beyond it 413."""
    message_bytes: int = 80 * MIB
    """Above `body_bytes` a frame is refused in band; above this hypercorn closes with 1009."""
    header_bytes: int = 64 * 1024
    """Request line and headers; Codex's turn metadata alone can take several kB."""
    body_silent_seconds: float = 10.0
    body_seconds: float = 120.0
    """A body must keep coming, and must end."""
    stall_seconds: float = 30.0
    """A client that takes nothing for so long is gone (also TCP_USER_TIMEOUT)."""
    outbox_bytes: int = 256 * 1024
    """What one turn may be ahead of its client; more slows the upstream down."""
    filler_seconds: float = 20.0
    """Codex gives a silent stream up after 300 s, others after 30: an event well before that."""
    ping_seconds: float = 20.0
    """WebSocket pings find dead peers behind an idle socket."""
    discard_seconds: float = 5.0
    """After a refusal the unread body is read on for so long, so that the answer is seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """`[upstream]`: where turns go, and the deadlines of one attempt."""

    url: str | None = None
    """Base URL. Without one: the provider that the client's own login belongs to."""
    connect_seconds: float = 10.0
    first_event_seconds: float = 120.0
    whole_body_seconds: float = 600.0
    """First byte of an answer that is not streamed: the model has finished by then."""
    silence_seconds: float = 300.0
    """Between two events; Codex itself gives up after 300 s."""
    sends: int = 2
    """Physical sends for one client attempt: one retry of what failed before its first event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    server: Server = field(default_factory=Server)
    client: Client = field(default_factory=Client)
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    limits: Limits = field(default_factory=Limits)
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
        "server": Server,
        "client": Client,
        "upstream": UpstreamSettings,
        "workflow": WorkflowLimits,
    }
)
_MAY_BE_NOUGHT: Final = frozenset(
    {"server.port", "server.drain_seconds", "client.outbox_bytes", "client.discard_seconds"}
)
"""A deadline or an interval of nothing would fail every turn, or never stop repeating."""
_BASE_URL: Final = re.compile(
    r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/[^\s?#]*)?", re.ASCII
)


def load(
    path: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Mapping[str, object]],
) -> Config:
    """Read the file, then the environment, then flags (`{section: {key: value}}`).

    Raises ConfigError naming the key, for the first thing that is wrong.
    """
    tables = _read(path) if path is not None else {}
    if url := environment.get("TURNLANE_UPSTREAM"):
        tables.setdefault("upstream", {})["url"] = url
    for section, values in flags.items():
        tables.setdefault(section, {}).update(values)
    config = Config(
        home=home(environment),
        limits=_limits(tables),
        server=_section(Server, "server", tables),
        client=_section(Client, "client", tables),
        upstream=_section(UpstreamSettings, "upstream", tables),
    )
    _check(config)
    return config


def home(environment: Mapping[str, str]) -> Path:
    """TURNLANE_HOME, else `turnlane` below XDG_DATA_HOME, else below ~/.local/share."""
    if named := environment.get("TURNLANE_HOME"):
        return Path(named).expanduser()
    data = environment.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "turnlane"


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from error
    for section, values in document.items():
        if section not in _SECTIONS and section not in _LIMIT_KEYS:
            raise ConfigError(section, f"unknown section; there are {_names()}")
        if not isinstance(values, dict):
            raise ConfigError(section, "must be a table")
    return document


def _names() -> str:
    return ", ".join(sorted({*_SECTIONS, *_LIMIT_KEYS}))


def _section(kind: type[T], name: str, tables: Mapping[str, Mapping[str, object]]) -> T:
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in tables.get(name, {}).items():
        if key not in hints:
            raise ConfigError(f"{name}.{key}", f"unknown key; there are {', '.join(hints)}")
        values[key] = _convert(f"{name}.{key}", value, hints[key])
    return _built(kind, values, {key: f"{name}.{key}" for key in values})


def _limits(tables: Mapping[str, Mapping[str, object]]) -> Limits:
    hints = get_type_hints(Limits)
    values: dict[str, Any] = {"workflow": _section(WorkflowLimits, "workflow", tables)}
    written: dict[str, str] = {}
    for section, keys in _LIMIT_KEYS.items():
        for key, value in tables.get(section, {}).items():
            if key not in keys:
                raise ConfigError(f"{section}.{key}", f"unknown key; there are {', '.join(keys)}")
            name = keys[key]
            written[name] = f"{section}.{key}"
            values[name] = _convert(written[name], value, hints[name])
    return _built(Limits, values, written)


def _built(kind: type[T], values: Mapping[str, Any], written: Mapping[str, str]) -> T:
    """Raises ConfigError naming the keys without any one of which the rest would work."""
    try:
        return kind(**values)
    except ValueError as error:
        blamed = [key for name, key in written.items() if _would_work_without(name, kind, values)]
        raise ConfigError(", ".join(blamed or written.values()), str(error)) from error


def _would_work_without(name: str, kind: type[T], values: Mapping[str, Any]) -> bool:
    try:
        kind(**{key: value for key, value in values.items() if key != name})
    except ValueError:
        return False
    return True


def _convert(key: str, value: object, hint: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(key, "must be a finite number")
    try:
        return msgspec.convert(value, type=hint)
    except msgspec.ValidationError as error:
        raise ConfigError(key, str(error)) from error


def _check(config: Config) -> None:
    for name in ("server", "client", "upstream"):
        part = getattr(config, name)
        for item in fields(part):
            key, value = f"{name}.{item.name}", getattr(part, item.name)
            if isinstance(value, int | float) and value <= 0:
                if key not in _MAY_BE_NOUGHT:
                    raise ConfigError(key, "must be more than 0")
                if value < 0:
                    raise ConfigError(key, "cannot be negative")
    if config.server.port > 65535:
        raise ConfigError("server.port", "must be between 0 and 65535")
    url = config.upstream.url
    if url is not None and not _BASE_URL.fullmatch(url):
        raise ConfigError("upstream.url", "must be http:// or https:// and a host, without a query")
