"""Large parts of stored values: images, sounds and files in base64 are cut out, to be stored once by hash.

A value of `gateway.stores.packing` without large parts stays as it is. One with such parts becomes a remainder, which names them by
the SHA-256 of their bytes, and the parts. `restore` puts the same bytes together again. A store keeps parts by owner and
hash, so that nobody can find out, by a hash, what others have stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

LARGE: Final = 16 * 1024
"""Bytes from which a part is stored apart."""

_REMAINDER: Final = b"\x02"
"""The first byte of a remainder; `gateway.stores.packing.VERSION` is that of a whole value."""
_WINDOW: Final = 256
"""Bytes that are looked at in each step. If they are base64, they may be in a large part."""
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_="
_RUN: Final = re.compile(rb"[A-Za-z0-9+/\-_=]*")


class _Remainder(msgspec.Struct, frozen=True, array_like=True):
    hashes: list[str]
    """Of the parts, in their order. One part may occur several times."""
    between: list[bytes]
    """What is before, between and after the parts."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Remainder)


class Cut(NamedTuple):
    """A packed value without its large parts."""

    data: bytes
    parts: Mapping[str, bytes]
    """By hash, as 64 hexadecimal digits."""


def cut(packed: bytes) -> Cut:
    """The remainder of a packed value, and its large parts. Takes time proportional to the size of the parts."""
    if len(packed) < LARGE:
        return Cut(packed, {})
    parts: dict[str, bytes] = {}
    hashes: list[str] = []
    between: list[bytes] = []
    end = 0
    for start, stop in _large_runs(packed):
        part = packed[start:stop]
        name = hashlib.sha256(part).hexdigest()
        parts[name] = part
        hashes.append(name)
        between.append(packed[end:start])
        end = stop
    if not parts:
        return Cut(packed, {})
    between.append(packed[end:])
    return Cut(_REMAINDER + _ENCODER.encode(_Remainder(hashes, between)), parts)


def _large_runs(packed: bytes) -> Iterator[tuple[int, int]]:
    """Where the runs of base64 with at least `LARGE` bytes begin and end. Other text is passed in large steps."""
    at = end = 0
    step = LARGE // 2
    while at + step <= len(packed):
        # A large run has two steps, and so the whole window at one of them.
        window = packed[at : at + _WINDOW]
        if window.translate(None, _ALPHABET):
            at += step
            continue
        # If it began a step earlier, that step would have found it.
        before = packed[max(end, at - step) : at][::-1]
        start = at - _length(before, 0)
        end = at + _length(packed, at)
        if end - start >= LARGE:
            yield start, end
        at = max(end, at + step)


def _length(text: bytes, at: int) -> int:
    """Bytes of base64 from `at` on."""
    found = _RUN.match(text, at)
    return 0 if found is None else found.end() - at


def _remainder(data: bytes | None) -> _Remainder | None:
    """The remainder that `data` is; None if it is a whole value, or was written by another version."""
    if data is None or data[:1] != _REMAINDER:
        return None
    try:
        found = _DECODER.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if len(found.between) == len(found.hashes) + 1 > 1 else None


def named_parts(data: bytes | None) -> Collection[str]:
    """The hashes of the parts that a stored value names."""
    remainder = _remainder(data)
    return frozenset(remainder.hashes) if remainder else ()


def restore(data: bytes, parts: Mapping[str, bytes]) -> bytes | None:
    """The packed value of which `cut` made `data`; `data` itself if it is none. None if a part is missing."""
    remainder = _remainder(data)
    if remainder is None:
        return data
    if not all(name in parts for name in remainder.hashes):
        return None
    whole = [remainder.between[0]]
    for name, following in zip(remainder.hashes, remainder.between[1:], strict=True):
        whole += (parts[name], following)
    return b"".join(whole)


def whole_size(data: bytes, parts: Mapping[str, bytes]) -> int:
    """Bytes of the packed value, with each of its parts as often as it occurs."""
    remainder = _remainder(data)
    if remainder is None:
        return len(data)
    return sum(map(len, remainder.between)) + sum(len(parts[name]) for name in remainder.hashes)
