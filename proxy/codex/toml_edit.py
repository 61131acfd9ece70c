"""Read, set and remove one root key of a TOML file, with every other byte as it was; pure.

A new key is put on a line of its own at the top: there it is in the root table whatever follows.
A replaced one is read again and compared; an edit that would change anything else is refused.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

KEY: Final = "openai_base_url"
_BOM: Final = "\ufeff"
_DIRECTIVE: Final = "#:"
"""Editors expect `#:schema` on the first line."""


class NotToml(ValueError):  # noqa: N818
    """The content is not valid TOML, or cannot be edited safely; the text says why."""


def parse(content: bytes | None) -> dict[str, Any]:
    """Parse TOML. Raises NotToml. Floats stay text, because they are only compared."""
    try:
        return tomllib.loads(_text(content)[1], parse_float=str)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NotToml(str(error)) from error


def with_value(content: bytes | None, value: str) -> bytes:
    """Return the content with the root key set to `value`. Raises NotToml."""
    table = parse(content)
    bom, text = _text(content)
    if KEY not in table:
        import tomlkit  # it is slow to import, and most commands only read

        line = f"{KEY} = {tomlkit.string(value).as_string()}"
        return (bom + _put_on_top(text, line)).encode()
    if not isinstance(table[KEY], str):
        raise NotToml(f"its {KEY} is not a string")
    return (bom + _replaced(text, value, {**table, KEY: value})).encode()


def without_value(content: bytes, previous: str | None) -> bytes:
    """Return the content with the root key set to `previous`, or removed if that is None."""
    rest = {key: value for key, value in parse(content).items() if key != KEY}
    bom, text = _text(content)
    expected = rest if previous is None else {**rest, KEY: previous}
    return (bom + _replaced(text, previous, expected)).encode()


def lines_with(content: bytes, value: str) -> tuple[int, ...]:
    """Return the numbers of the lines, from 1, that have a value; also when it is not TOML."""
    lines = content.split(b"\n")
    return tuple(number for number, line in enumerate(lines, 1) if value.encode() in line)


def lines_setting(content: bytes, key: str) -> tuple[int, ...]:
    """Return the numbers of the lines, from 1, that set a bare key; also when it is not TOML."""
    begin = re.compile(rb"\s*" + key.encode() + rb"\s*=")
    lines = content.split(b"\n")
    return tuple(number for number, line in enumerate(lines, 1) if begin.match(line))


def _text(content: bytes | None) -> tuple[str, str]:
    """Return the byte order mark, if there is one, and the rest. Line ends stay what they are."""
    try:
        text = (content or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotToml(f"it is not UTF-8: {error}") from error
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _put_on_top(text: str, line: str) -> str:
    end = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    above = ""
    while text.startswith(_DIRECTIVE):
        directive, newline, text = text.partition("\n")
        above += directive + (newline or end)
    return f"{above}{line}{end}{text}"


def _replaced(text: str, value: str | None, expected: Mapping[str, Any]) -> str:
    """Replace the key's value and keep its comment; None removes the key. Raises NotToml."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        same = document.as_string() == text
        if value is None:
            del document[KEY]
        else:
            document[KEY] = value
        fresh = document.as_string()
    except (TOMLKitError, RecursionError) as error:
        raise NotToml(str(error)) from error
    if not same or parse(fresh.encode()) != expected:
        raise NotToml("it cannot be edited without changing something else")
    return fresh
