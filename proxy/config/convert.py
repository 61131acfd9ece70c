"""Conversion, pure: tables of a TOML file become frozen dataclasses; errors name the key."""

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from proxy.errors import ConfigError

T = TypeVar("T")


def from_table(kind: type[T], name: str, tables: Mapping[str, Mapping[str, object]]) -> T:
    """Convert the table `name` to a `kind`. Raises ConfigError."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in tables.get(name, {}).items():
        if key not in hints:
            raise ConfigError(f"{name}.{key}", f"unknown key; valid keys are {', '.join(hints)}")
        values[key] = convert(f"{name}.{key}", value, hints[key])
    return built(kind, values, {key: f"{name}.{key}" for key in values}, name)


def built(
    kind: type[T], values: Mapping[str, Any], written: Mapping[str, str], name: str = ""
) -> T:
    """Build a `kind` from its values. `name` is the name of the table, if it has one.

    Raises ConfigError naming each key without which the other values would be valid.
    """
    try:
        return kind(**values)
    except ValueError as error:
        blamed = [key for name, key in written.items() if _would_work_without(name, kind, values)]
        blamed = blamed or [*written.values()] or [name]
        raise ConfigError(", ".join(blamed), str(error)) from error


def _would_work_without(name: str, kind: type[T], values: Mapping[str, Any]) -> bool:
    try:
        kind(**{key: value for key, value in values.items() if key != name})
    except ValueError:
        return False
    return True


def convert(key: str, value: object, hint: object) -> object:
    """Convert one value to its type. Raises ConfigError."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(key, "must be a finite number")
    try:
        return msgspec.convert(value, type=hint)
    except msgspec.ValidationError as error:
        allowed = _allowed(hint)
        known = f"; valid values are {', '.join(allowed)}" if allowed else ""
        raise ConfigError(key, f"{error}{known}") from error


def _allowed(hint: object) -> list[str]:
    """Return the valid values of an enumeration; none for other types."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(each.value) for each in hint]
    return [str(each) for each in get_args(hint)] if get_origin(hint) is Literal else []
