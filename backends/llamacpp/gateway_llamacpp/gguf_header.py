"""Reads the metadata of a GGUF file without the weights.

The layout follows GGUF's specification (ggml's `docs/gguf.md`), versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    _BOOL: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_HEADER = struct.Struct("<4sIQQ")


def read_metadata(path: Path) -> dict[str, Any]:
    """The key-value pairs of the GGUF file at `path`: scalars, strings and lists.

    Raises ValueError, with a phrase that can end a sentence, if it is not a GGUF file of a known version.
    """
    with path.open("rb") as file:
        if path.stat().st_size < _HEADER.size:
            raise ValueError("it is too short to be a GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _Reader(data).metadata()
            except (struct.error, IndexError) as error:
                raise ValueError("its metadata ends in the middle") from error


class _Reader:
    """A cursor over the file's bytes."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def metadata(self) -> dict[str, Any]:
        magic, version, _tensors, pairs = _HEADER.unpack_from(self._data, 0)
        if magic != b"GGUF":
            raise ValueError("it is not a GGUF file")
        if version not in (2, 3):
            raise ValueError(f"its GGUF version {version} is not known")
        self._at = _HEADER.size
        found: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string()
            (kind,) = _U32.unpack_from(self._data, self._at)
            self._at += 4
            found[key] = self._value(kind)
        return found

    def _string(self) -> str:
        (length,) = _U64.unpack_from(self._data, self._at)
        start = self._at + 8
        end = start + length
        if end > len(self._data):
            raise IndexError(end)
        self._at = end
        return self._data[start:end].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            (of,) = _U32.unpack_from(self._data, self._at)
            (count,) = _U64.unpack_from(self._data, self._at + 4)
            self._at += 12
            return self._array(of, count)
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise ValueError(f"its metadata has a value of the unknown type {kind}")
        (value,) = scalar.unpack_from(self._data, self._at)
        self._at += scalar.size
        return value

    def _array(self, of: int, count: int) -> list[Any]:
        if of in (_STRING, _ARRAY):
            return [self._value(of) for _ in range(count)]
        scalar = _SCALARS.get(of)
        if scalar is None:
            raise ValueError(f"its metadata has an array of the unknown type {of}")
        values = struct.unpack_from(f"<{count}{scalar.format[1:]}", self._data, self._at)
        self._at += scalar.size * count
        return list(values)
