"""Decoding bodies with many values beside other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SMALL = 65_536
_FEW = 8192


async def decode_body(body: bytes, decode: Callable[[bytes], T]) -> T:
    """`decode(body)`, in a thread if the body has so many values that decoding it would hold up other requests.

    A body of up to 64 KiB is decoded at once, and so is a larger one with up to 8192 commas: a long text or an image.
    """
    if len(body) > _SMALL and body.count(b",") > _FEW:
        return await asyncio.to_thread(decode, body)
    return decode(body)
