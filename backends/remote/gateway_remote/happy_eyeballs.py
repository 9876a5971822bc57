"""Connecting to a host that has several addresses, some of which may not answer (RFC 8305), by any event loop.

asyncio can do it, uvloop cannot.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Final, TypeVar

ATTEMPT_DELAY: Final = 0.25
"""Seconds after which the next address is tried beside the ones before it."""

T = TypeVar("T")


async def addresses_of(host: str, port: int) -> Sequence[str]:
    """The addresses of `host`, in the order in which they are tried: as the system orders them, families in turn. Raises
    `OSError`."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        pass
    else:
        return [host]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families: dict[int, list[str]] = {}
    for family, *_, address in found:
        ours = families.setdefault(family, [])
        if str(address[0]) not in ours:
            ours.append(str(address[0]))
    return [each for each in chain.from_iterable(zip_longest(*families.values())) if each]


async def first_connected(
    addresses: Sequence[str],
    connect: Callable[[str], Awaitable[T]],
    close: Callable[[T], None],
    *,
    delay: float = ATTEMPT_DELAY,
) -> T:
    """The first result of `connect`, which is called for one address after the other: for the next one when the last has failed, or
    has not succeeded in `delay` seconds. Other results are given to `close`. Raises the first address's `OSError` if all fail."""
    if len(addresses) == 1:
        return await connect(addresses[0])
    left = list(addresses)
    tasks: list[asyncio.Task[T]] = []
    winner: asyncio.Task[T] | None = None
    try:
        while winner is None:
            if left:
                tasks.append(asyncio.ensure_future(connect(left.pop(0))))
            running = [task for task in tasks if not task.done()]
            if not running and not left:
                break
            if running:
                await asyncio.wait(
                    running,
                    timeout=delay if left else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            winner = next((task for task in tasks if _succeeded(task)), None)
        return (winner or tasks[0]).result()
    finally:
        others = [task for task in tasks if task is not winner]
        for task in others:
            task.cancel()
        for result in await asyncio.gather(*others, return_exceptions=True):
            if not isinstance(result, BaseException):
                close(result)


def _succeeded(task: asyncio.Task[T]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
