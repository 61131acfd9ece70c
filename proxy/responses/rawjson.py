"""JSON read shallowly: an object's members stay the bytes that they came as."""

from typing import Final

import msgspec

Fields = dict[str, msgspec.Raw]

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no JSON of the wanted shape, or are nested too deep."""

_fields: Final = msgspec.json.Decoder(Fields)
_string: Final = msgspec.json.Decoder(str)


def members(data: bytes | msgspec.Raw) -> Fields:
    """The members of a JSON object. Raises one of UNREADABLE."""
    return _fields.decode(data)


def text(fields: Fields, key: str) -> str | None:
    """A string member; None when it is absent or something else."""
    try:
        return _string.decode(fields[key])
    except (KeyError, *UNREADABLE):
        return None
