"""Shallow JSON, pure: the members of an object stay the bytes that they came as."""

from typing import Final

import msgspec

Fields = dict[str, msgspec.Raw]

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not JSON of the wanted shape, or are nested too deep."""

members: Final = msgspec.json.Decoder(Fields).decode
"""Return the members of a JSON object. Raises one of UNREADABLE."""

_string: Final = msgspec.json.Decoder(str)


def text(fields: Fields, key: str) -> str | None:
    """Return a member that is a string, or None if it is absent or something else."""
    try:
        return _string.decode(fields[key])
    except (KeyError, *UNREADABLE):
        return None
