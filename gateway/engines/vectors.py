"""Vectors of embeddings, for engines: made, cut, and read from base64."""

from __future__ import annotations

import binascii
import math
import sys
from array import array
from collections.abc import Iterable

from gateway.errors import EngineError


def vector_of(numbers: Iterable[float]) -> array[float]:
    """32-bit floats of any numbers."""
    return array("f", numbers)


def vector_of_bytes(data: bytes) -> array[float]:
    """The vector whose little-endian 32-bit floats `data` is. Raises ValueError for a broken length."""
    vector = array("f")
    vector.frombytes(data)
    if sys.byteorder == "big":
        vector.byteswap()
    return vector


def bytes_of(vector: array[float]) -> bytes:
    """Its little-endian 32-bit floats, as OpenAI's `base64` has them."""
    if sys.byteorder == "little":
        return vector.tobytes()
    swapped = array("f", vector)
    swapped.byteswap()
    return swapped.tobytes()


def vector_of_json(value: str | list[float]) -> array[float]:
    """A vector as servers send it: base64, or numbers. Raises ValueError."""
    if isinstance(value, list):
        return vector_of(value)
    try:
        return vector_of_bytes(binascii.a2b_base64(value, strict_mode=True))
    except binascii.Error as error:
        raise ValueError(f"a vector is no base64: {error}") from error


def shortened(vector: array[float], dimensions: int | None) -> array[float]:
    """The first `dimensions` numbers, at length 1 again (Matryoshka); all of them for None."""
    if dimensions is None or dimensions == len(vector):
        return vector
    return normalized(vector[:dimensions])


def normalized(vector: array[float]) -> array[float]:
    """The same direction, at length 1. Raises `EngineError` for one that has none."""
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        raise EngineError("The engine gave a vector without a direction.")
    return array("f", [number / length for number in vector])
