"""Embedding vectors: creation, truncation, and base64."""

from __future__ import annotations

import binascii
import math
import sys
from array import array
from collections.abc import Iterable

from gateway.base.errors import EngineError


def vector_of(numbers: Iterable[float]) -> array[float]:
    """Convert numbers to 32-bit floats."""
    return array("f", numbers)


def vector_of_bytes(data: bytes) -> array[float]:
    """Decode little-endian 32-bit floats. Raises ValueError if the length is not a multiple of four."""
    vector = array("f")
    vector.frombytes(data)
    if sys.byteorder == "big":
        vector.byteswap()
    return vector


def bytes_of(vector: array[float]) -> bytes:
    """Encode as little-endian 32-bit floats, as in OpenAI's `base64` format."""
    if sys.byteorder == "little":
        return vector.tobytes()
    swapped = array("f", vector)
    swapped.byteswap()
    return swapped.tobytes()


def vector_of_json(value: str | list[float]) -> array[float]:
    """Decode a vector from a server's JSON: base64, or numbers. Raises ValueError."""
    if isinstance(value, list):
        return vector_of(value)
    try:
        return vector_of_bytes(binascii.a2b_base64(value, strict_mode=True))
    except binascii.Error as error:
        raise ValueError(f"a vector is not valid base64: {error}") from error


def shortened(vector: array[float], dimensions: int | None) -> array[float]:
    """The first `dimensions` numbers, normalized to length 1 (Matryoshka); the whole vector if None."""
    if dimensions is None or dimensions == len(vector):
        return vector
    return normalized(vector[:dimensions])


def normalized(vector: array[float]) -> array[float]:
    """The vector scaled to length 1. Raises `EngineError` for the zero vector."""
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        raise EngineError("The engine gave a vector without a direction.")
    return array("f", [number / length for number in vector])
