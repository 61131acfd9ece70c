"""PURE. Where Codex's configuration leads its turns, and what in it would go another way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from proxy.codex.edit import KEY, NotToml, parse
from proxy.config import is_loopback

BUILT_IN: Final = "openai"
_ANYWHERE: Final = frozenset({"0.0.0.0", "::"})
"""What a listener on every address is configured as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`url` is where turns go; None when they go to the provider that is built in, or when there
    is a `problem`: then nothing is known."""

    problem: str | None = None
    value: object = None
    """Of the root key, whether or not it is what decides."""
    provider: str = BUILT_IN
    url: str | None = None
    bypasses: tuple[str, ...] = ()


def read_config(content: bytes | None, profiles: Mapping[str, bytes]) -> Reading:
    """`profiles` are the files `NAME.config.toml` beside it, by name."""
    try:
        table = parse(content)
    except NotToml as error:
        return Reading(problem=str(error))
    provider = table.get("model_provider", BUILT_IN)
    if not isinstance(provider, str):
        return Reading(problem="its model_provider is no string", value=table.get(KEY))
    return Reading(
        value=table.get(KEY),
        provider=provider,
        url=_url(table, provider),
        bypasses=(*_selected(table, provider), *_profiles(table, profiles)),
    )


def is_same_place(one: str, other: str) -> bool:
    """Whether two base URLs lead to one listener: loopback has several names."""
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


def _selected(table: Mapping[str, Any], provider: str) -> Iterator[str]:
    if provider != BUILT_IN:
        where = _url(table, provider) or "a place of its own"
        yield f'model_provider = "{provider}" leads to {where}; {KEY} has no say in it'
    if (profile := table.get("profile")) is not None:
        yield f"profile = {profile!r}: some versions of Codex let it decide, others refuse to start"


def _profiles(table: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[str]:
    inner = _table(table, "profiles")
    for name in inner:
        for key, value in _deciding(_table(inner, name)):
            yield f"[profiles.{name}] has {key} = {value!r}, for a Codex that reads it"
    for name, content in sorted(files.items()):
        try:
            for key, value in _deciding(parse(content)):
                yield f"{name}.config.toml has {key} = {value!r}, for `codex --profile {name}`"
        except NotToml as error:
            yield f"{name}.config.toml cannot be read: {error}"


def _deciding(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield from ((key, table[key]) for key in ("model_provider", KEY) if key in table)


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What is no table counts as an empty one: Codex is the one to complain."""
    inner = table.get(name)
    return inner if isinstance(inner, dict) else {}


def _split(url: str) -> SplitResult | None:
    try:
        split = urlsplit(url)
        named = split.port is not None or bool(split.hostname)  # a bad port raises when it is read
    except ValueError:
        return None
    return split if named else None


def _versions(split: SplitResult) -> set[int]:
    """Of IP, where an address is of one alone: who listens on ::1 does not hear 127.0.0.1."""
    host = split.hostname or ""
    if host in {"::", "localhost"}:
        return set()
    return {ip_address(host).version}


def _is_here(split: SplitResult) -> bool:
    host = split.hostname or ""
    return is_loopback(host) or host in _ANYWHERE
