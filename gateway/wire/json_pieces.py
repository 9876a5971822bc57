"""Decoding and encoding large JSON texts in pieces, between which other threads run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from gateway.wire.common import encode

LEVELS: Final = 5
"""Levels of nesting that are decoded in pieces. The properties of a tool's JSON schema are on the fifth level."""
_LARGE = 65_536
"""Maximum size in bytes of a text that is decoded as one piece, which takes about a millisecond."""
_FEW = 4096
"""Maximum number of commas in a container that is divided into its values in one step."""
_ENDS = (b"},", b'",', b"],", b",")
"""Possible ends of a member or an element, in the order in which they are tried."""
_AT_ONCE = 1024
"""Number of values that are encoded in one step."""
_decode = msgspec.json.decode


class _Key(str):
    """A key that is not equal to any other. A dictionary thus keeps all members of an object, also those with a
    repeated key."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


_members = msgspec.json.Decoder(
    dict[_Key, msgspec.Raw], dec_hook=lambda kind, key: kind(key)
).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode_pieces(text: bytes | msgspec.Raw, *, levels: int = LEVELS) -> Any:
    """Decode like `msgspec.json.decode(text)`, which would hold the interpreter's lock until its end. The pieces are
    members of objects and elements of lists, down to `levels` levels of nesting.

    Raises the same errors for a text that is not JSON, but they may name another position.
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
    """Decode the first values of a large container, thousands in each step, and pass them to `take`. Returns the
    container without these values.

    The text is cut at a comma. If the text before the comma is a valid container once it is closed, the comma separates
    two values: after reading it, a parser is in the same state whatever follows.
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
        _decode(data)  # raises the error about the trailing comma
    return data[:1] + rest


def _piece(text: bytes) -> Any:
    """Decode a text; None if it is not JSON."""
    try:
        return _decode(text)
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError):
        return None


def encode_pieces(values: Sequence[Any], shown: Callable[[Any], Any] | None = None) -> Any:
    """The JSON array of many values, or of the results of `shown` for each. It replaces the list in a wire type:
    encoding the list would hold the interpreter's lock until its end, even in a thread."""
    parts: list[bytes] = []
    for at in range(0, len(values), _AT_ONCE):
        some = values[at : at + _AT_ONCE]
        parts.append(encode(some if shown is None else list(map(shown, some)))[1:-1])
    return msgspec.Raw(b"[%b]" % b",".join(parts))
