"""Codex's configuration: where it is, where it leads turns, and what in it would go another way.

Only `read_codex` touches a file.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from proxy.codex.files import Disk
from proxy.codex.toml_edit import KEY, NotToml, parse
from proxy.headers import is_loopback

CONFIG_NAME: Final = "config.toml"
PROFILE_SUFFIX: Final = ".config.toml"
MOST_PROFILES: Final = 64
BUILT_IN: Final = "openai"
OURS: Final = "turnlane"
"""The name of the provider that `turnlane codex show` prints."""
_ANYWHERE: Final = frozenset({"0.0.0.0", "::"})
"""Hosts that mean every address of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a configuration says. `url` is where turns go; None if they go to the built-in provider,
    or if a `problem` leaves that unknown."""

    problem: str | None = None
    value: object = None
    """The value of the root key, whether or not it decides."""
    provider: str = BUILT_IN
    profile: object = None
    """A root `profile`: Codex 0.171 refuses to start with one, older versions let it decide."""
    url: str | None = None
    bypasses: tuple[str, ...] = ()


def codex_home(environment: Mapping[str, str]) -> Path:
    """Return CODEX_HOME, else ~/.codex: absolute, and a link if it is one."""
    if named := environment.get("CODEX_HOME"):
        return Path(os.path.abspath(named))
    user = Path(environment.get("HOME") or "~").expanduser()
    return Path(os.path.abspath(user / ".codex"))


def read_codex(files: Disk, where: Path, here: str | None = None) -> Reading:
    """Read the configuration and the profiles beside it; `here` as for `read_config`."""
    try:
        content = files.read(files.resolve(where / CONFIG_NAME))
        profiles = {
            path.name.removesuffix(PROFILE_SUFFIX): files.read(files.resolve(path)) or b""
            for path in sorted(where.glob(f"?*{PROFILE_SUFFIX}"))[:MOST_PROFILES]
        }
    except OSError as error:
        return Reading(problem=str(error))
    return read_config(content, profiles, here)


def read_config(
    content: bytes | None, profiles: Mapping[str, bytes], here: str | None = None
) -> Reading:
    """Read a configuration and its profiles.

    `profiles` are the files `NAME.config.toml` beside it, by name. `here` is turnlane's base URL,
    if it is known: a provider that leads there is not a bypass.
    """
    try:
        table = parse(content)
    except NotToml as error:
        return Reading(problem=str(error))
    provider = table.get("model_provider", BUILT_IN)
    if not isinstance(provider, str):
        return Reading(problem="its model_provider is not a string", value=table.get(KEY))
    value = table.get(KEY)
    if value is not None and not isinstance(value, str):
        return Reading(problem=f"its {KEY} is not a string, so Codex does not start", value=value)
    return Reading(
        value=value,
        provider=provider,
        profile=table.get("profile"),
        url=_url(table, provider),
        bypasses=(*_selected(table, provider, here), *_profiles(table, profiles)),
    )


def is_same_place(one: str, other: str) -> bool:
    """Return whether two base URLs lead to one listener: loopback has several names."""
    first, second = _split(one), _split(other)
    if first is None or second is None or first.path.rstrip("/") != second.path.rstrip("/"):
        return False
    if _is_here(first) and _is_here(second):
        same = (first.scheme, first.port) == (second.scheme, second.port)
        return same and len(_versions(first) | _versions(second)) < 2
    return first.scheme == second.scheme and first.netloc.lower() == second.netloc.lower()


def is_local(url: str) -> bool:
    split = _split(url)
    return split is not None and _is_here(split)


def _url(table: Mapping[str, Any], provider: str) -> str | None:
    known = table if provider == BUILT_IN else _table(_table(table, "model_providers"), provider)
    url = known.get(KEY if provider == BUILT_IN else "base_url")
    return url if isinstance(url, str) else None


def _selected(table: Mapping[str, Any], provider: str, here: str | None) -> Iterator[str]:
    url = _url(table, provider)
    if provider != BUILT_IN and not leads_here(provider, url, here):
        where = url or "an address of its own"
        yield f'model_provider = "{provider}" leads to {where}, so {KEY} has no effect'


def leads_here(provider: str, url: str | None, here: str | None) -> bool:
    """Return whether a provider leads to turnlane: by its address, or by the name that `turnlane
    codex show` gives it where no address is known."""
    if url is None:
        return False
    if here is not None:
        return is_same_place(url, f"{here}/v1")
    return provider == OURS and is_local(url)


def _profiles(table: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[str]:
    inner = _table(table, "profiles")
    for name in inner:
        for key, value in _deciding(_table(inner, name)):
            yield f"[profiles.{name}] sets {key} = {value!r}, for Codex versions that read it"
    for name, content in sorted(files.items()):
        try:
            for key, value in _deciding(parse(content)):
                yield f"{name}.config.toml sets {key} = {value!r}, for `codex --profile {name}`"
        except NotToml as error:
            yield f"{name}.config.toml cannot be read: {error}"


def _deciding(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield from ((key, table[key]) for key in ("model_provider", KEY) if key in table)


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Anything but a table counts as an empty one: Codex is the one to complain."""
    inner = table.get(name)
    return inner if isinstance(inner, dict) else {}


def _split(url: str) -> SplitResult | None:
    try:
        split = urlsplit(url)
        named = split.port is not None or bool(split.hostname)  # reading an invalid port raises
    except ValueError:
        return None
    return split if named else None


def _versions(split: SplitResult) -> set[int]:
    """IP versions that a host can mean; empty for both. A listener on ::1 does not accept
    connections to 127.0.0.1."""
    host = split.hostname or ""
    if host in {"::", "localhost"}:
        return set()
    return {ip_address(host).version}


def _is_here(split: SplitResult) -> bool:
    host = split.hostname or ""
    return is_loopback(host) or host in _ANYWHERE
