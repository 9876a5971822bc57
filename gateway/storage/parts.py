"""Deduplication of large parts of stored values: images, sounds and files in base64 are cut out and stored once, by
hash.

A packed value (`gateway.storage.packing`) without large parts is not changed. A value with large parts is split into
these parts and a remainder, which refers to the parts by the SHA-256 of their bytes. `restore` reassembles the value.
A store keeps parts by owner and hash, so that a client cannot use a hash to find out what other owners have stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

LARGE: Final = 16 * 1024
"""Minimum size, in bytes, of a part that is stored separately."""

_REMAINDER: Final = b"\x02"
"""The first byte of a remainder. The first byte of a whole value is `gateway.storage.packing.VERSION`."""
_WINDOW: Final = 256
"""Bytes that are examined in each step. If all of them are base64 characters, they may belong to a large part."""
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_="
_RUN: Final = re.compile(rb"[A-Za-z0-9+/\-_=]*")


class _Remainder(msgspec.Struct, frozen=True, array_like=True):
    hashes: list[str]
    """Hashes of the parts, in order. A part may occur several times."""
    between: list[bytes]
    """The bytes before, between and after the parts."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Remainder)


class Cut(NamedTuple):
    """A packed value without its large parts."""

    data: bytes
    parts: Mapping[str, bytes]
    """The parts by their hashes, as 64 hexadecimal digits."""


def cut(packed: bytes) -> Cut:
    """Split a packed value into a remainder and its large parts. Takes time proportional to the size of the parts."""
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
    """Yield start and end of each sequence of at least `LARGE` base64 characters. Other text is skipped in large
    steps."""
    at = end = 0
    step = LARGE // 2
    while at + step <= len(packed):
        # A large sequence spans two steps, so it contains the whole window of at least one step.
        window = packed[at : at + _WINDOW]
        if window.translate(None, _ALPHABET):
            at += step
            continue
        # It begins less than one step before; otherwise the previous step would have found it.
        before = packed[max(end, at - step) : at][::-1]
        start = at - _length(before, 0)
        end = at + _length(packed, at)
        if end - start >= LARGE:
            yield start, end
        at = max(end, at + step)


def _length(text: bytes, at: int) -> int:
    """Number of base64 characters from `at` on."""
    found = _RUN.match(text, at)
    return 0 if found is None else found.end() - at


def _remainder(data: bytes | None) -> _Remainder | None:
    """Decode `data` as a remainder; None if it is a whole value, or if another version wrote it."""
    if data is None or data[:1] != _REMAINDER:
        return None
    try:
        found = _DECODER.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if len(found.between) == len(found.hashes) + 1 > 1 else None


def named_parts(data: bytes | None) -> Collection[str]:
    """The hashes of the parts to which a stored value refers."""
    remainder = _remainder(data)
    return frozenset(remainder.hashes) if remainder else ()


def restore(data: bytes, parts: Mapping[str, bytes]) -> bytes | None:
    """Reassemble the packed value from its remainder `data` and its parts. Returns `data` itself if it is a whole
    value, and None if a part is missing."""
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
    """Size of the reassembled value in bytes. A part that occurs several times counts each time."""
    remainder = _remainder(data)
    if remainder is None:
        return len(data)
    return sum(map(len, remainder.between)) + sum(len(parts[name]) for name in remainder.hashes)
