"""Decoding large JSON texts in pieces, between which other threads run."""

from __future__ import annotations

from typing import Any

import msgspec

_LARGE = 65_536
"""Size in bytes of texts that are decoded as one piece: less than a millisecond."""
_SHORT = 32
"""Average size in bytes of values that cost more as pieces than as a whole."""
_decode = msgspec.json.decode
_values = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode_pieces(text: bytes | msgspec.Raw, *, levels: int = 2) -> Any:
    """`msgspec.json.decode(text)`, which would hold the interpreter's lock until its end. The pieces are the values of an object,
    and the elements of lists in it (`levels` of containers); many short values are one piece.

    Raises what that raises for what is no JSON, but the error may name another place. Of a key that is repeated, only the last
    value is decoded.
    """
    if not levels or len(memoryview(text)) <= _LARGE:
        return _decode(text)
    data = bytes(text) if isinstance(text, msgspec.Raw) else text
    if data.count(b",") * _SHORT > len(data):
        return _decode(data)
    below = levels - 1
    match data[:_SHORT].lstrip()[:1]:
        case b"{":
            values = _values(data)
            return {key: decode_pieces(value, levels=below) for key, value in values.items()}
        case b"[":
            return [decode_pieces(value, levels=below) for value in _elements(data)]
        case _:
            return _decode(data)
