"""PURE. Where Codex's configuration leads its turns, and what in it would go another way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from proxy.codex.toml_edit import KEY, NotToml, parse
from proxy.config.settings import is_loopback

BUILT_IN: Final = "openai"
OURS: Final = "turnlane"
"""The provider that `turnlane codex show` prints."""
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
    profile: object = None
    """In the root table: Codex 0.171 refuses to start with one, older versions let it decide."""
    url: str | None = None
    bypasses: tuple[str, ...] = ()


def read_config(
    content: bytes | None, profiles: Mapping[str, bytes], here: str | None = None
) -> Reading:
    """`profiles` are the files `NAME.config.toml` beside it, by name; `here` is the base URL of
    turnlane, where it is known: what leads there bypasses nothing."""
    try:
        table = parse(content)
    except NotToml as error:
        return Reading(problem=str(error))
    provider = table.get("model_provider", BUILT_IN)
    if not isinstance(provider, str):
        return Reading(problem="its model_provider is no string", value=table.get(KEY))
    value = table.get(KEY)
    if value is not None and not isinstance(value, str):
        return Reading(problem=f"its {KEY} is no string, so Codex does not start", value=value)
    return Reading(
        value=value,
        provider=provider,
        profile=table.get("profile"),
        url=_url(table, provider),
        bypasses=(*_selected(table, provider, here), *_profiles(table, profiles)),
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


def _selected(table: Mapping[str, Any], provider: str, here: str | None) -> Iterator[str]:
    url = _url(table, provider)
    if provider != BUILT_IN and not leads_here(provider, url, here):
        where = url or "a place of its own"
        yield f'model_provider = "{provider}" leads to {where}; {KEY} has no say in it'


def leads_here(provider: str, url: str | None, here: str | None) -> bool:
    """Whether a provider is one to turnlane: by its address, or by the name that `turnlane codex
    show` gives it where no address is known."""
    if url is None:
        return False
    if here is not None:
        return is_same_place(url, f"{here}/v1")
    return provider == OURS and is_local(url)


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
