"""Decoding and encoding large JSON texts in pieces, between which other threads run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from gateway.wire.common import encode

LEVELS: Final = 5
"""Levels of containers that are decoded in pieces: a property of a tool's JSON schema is a value of the fifth."""
_LARGE = 65_536
"""Size in bytes of texts that are decoded as one piece: about a millisecond."""
_FEW = 4096
"""Number of commas of a text whose values are divided at once."""
_ENDS = (b"},", b'",', b"],", b",")
"""What may end a member of an object or of a list, in the order in which it is tried."""
_AT_ONCE = 1024
"""Number of values that are encoded at once."""
_decode = msgspec.json.decode


class _Key(str):
    """A key that equals no other: a dictionary keeps all the members of an object, also those whose key is repeated."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


_members = msgspec.json.Decoder(
    dict[_Key, msgspec.Raw], dec_hook=lambda kind, key: kind(key)
).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode_pieces(text: bytes | msgspec.Raw, *, levels: int = LEVELS) -> Any:
    """`msgspec.json.decode(text)`, which would hold the interpreter's lock until its end. The pieces are members of objects and
    elements of lists, down to so many levels.

    Raises what that raises for what is not JSON, but the error may name another place.
    """
    if not levels or len(memoryview(text)) <= _LARGE:
        return _decode(text)
    data = bytes(text).lstrip()
    below = levels - 1
    match data[:1]:
        case b"{":
            values: dict[str, Any] = {}
            rest = _take_pieces(data, b"}", values.update)
            for key, value in _members(rest).items():
                values[str(key)] = decode_pieces(value, levels=below)
            return values
        case b"[":
            elements: list[Any] = []
            rest = _take_pieces(data, b"]", elements.extend)
            elements += [decode_pieces(value, levels=below) for value in _elements(rest)]
            return elements
        case _:
            return _decode(data)


def _take_pieces(data: bytes, closing: bytes, take: Callable[[Any], object]) -> bytes:
    """Decode the first values of a container that has many, and give them to `take`, thousands at a time. Returns the container
    without them.

    The text is cut at a comma. If what is before it is a whole container, once it is closed, the comma divides two values: a parser
    that has read it is in the same state, whatever follows.
    """
    at = 1
    if data.count(b",") > _FEW:
        while len(data) - at > _LARGE:
            for end in _ENDS:
                comma = data.rfind(end, at, at + _LARGE) + len(end) - 1
                piece = _piece(data[:1] + data[at:comma] + closing) if comma >= at else None
                if piece:
                    take(piece)
                    at = comma + 1
                    break
            else:
                break
    if at == 1:
        return data
    rest = data[at:]
    if rest.lstrip()[:1] == closing:
        _decode(data)  # raises the error about the comma at its end
    return data[:1] + rest


def _piece(text: bytes) -> Any:
    """The value of a text that may be JSON; None if it is not."""
    try:
        return _decode(text)
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError):
        return None


def encode_pieces(values: Sequence[Any], shown: Callable[[Any], Any] | None = None) -> Any:
    """The JSON array of many values, or of what `shown` makes of each; to be in the place of the list in a wire type. Encoding that
    would hold the interpreter's lock until its end, even in a thread."""
    parts: list[bytes] = []
    for at in range(0, len(values), _AT_ONCE):
        some = values[at : at + _AT_ONCE]
        parts.append(encode(some if shown is None else list(map(shown, some)))[1:-1])
    return msgspec.Raw(b"[%b]" % b",".join(parts))
