"""Reading answers of servers, which may be anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")


def reader_of(kind: type[T], *, strict: bool = True) -> Callable[[bytes], T]:
    """A decoder of JSON. Raises `msgspec.DecodeError` for whatever it cannot read, too deep nesting and text that is not UTF-8
    included."""
    decode = msgspec.json.Decoder(kind, strict=strict).decode

    def read(data: bytes) -> T:
        try:
            return decode(data)
        except (RecursionError, UnicodeDecodeError) as error:
            raise msgspec.DecodeError(str(error)) from error

    return read
