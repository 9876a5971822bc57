"""Work on large bodies and their contents that does not delay other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
ItemsT = TypeVar("ItemsT", bound=Sequence[Any])

_SMALL = 65_536
_LARGE = 2 << 20
_FEW = 8192
_MANY = 2000


async def decode_body(body: bytes, decode: Callable[[bytes], T]) -> T:
    """Decode `body`; in a thread if it has so many values that decoding it would delay other requests.

    A body of up to 64 KiB is decoded directly, and so is a body of up to 2 MiB with up to 8192 commas, such as a long
    text or an image.
    """
    if len(body) > _LARGE or (len(body) > _SMALL and body.count(b",") > _FEW):
        return await asyncio.to_thread(decode, body)
    return decode(body)


async def threaded_if_many(items: ItemsT, function: Callable[[ItemsT], T]) -> T:
    """Call `function(items)`, which takes about a microsecond per item; in a thread if there are more than 2000
    items."""
    if len(items) > _MANY:
        return await asyncio.to_thread(function, items)
    return function(items)


async def threaded_if_large(size: int, function: Callable[[], T]) -> T:
    """Call `function()`, which processes data that arrived in `size` bytes; in a thread if they are more than 64
    KiB."""
    if size > _SMALL:
        return await asyncio.to_thread(function)
    return function()
