"""Looks up host names that come from requests, pages and models.

A name server may not answer for half a minute, and a lookup cannot be cancelled. The event loop has few threads for
lookups (uvloop has four), which connections to engines need too. Therefore, these lookups have their own threads.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Final

from gateway.base.shares import ShareExceeded, Shares

MAX_LOOKUPS: Final = 64
"""Maximum number of concurrent lookups, including lookups whose callers no longer wait."""

LOOKUPS_OF_EACH: Final = 16
"""Maximum number of concurrent lookups of one owner."""

_shares = Shares(MAX_LOOKUPS, each=LOOKUPS_OF_EACH, max_waiting=0)


async def look_up(host: str, port: int) -> Sequence[str]:
    """All addresses of a host, from the system's resolver. Raises `OSError`, also if the owner of the current request
    has too many lookups running."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        pass
    try:
        owner = await _shares.take()
    except ShareExceeded:
        raise OSError("too many names are being looked up") from None
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def run() -> None:
        end: Callable[[], None]
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            end = partial(answer.set_result, list(dict.fromkeys(str(each[4][0]) for each in found)))
        except UnicodeError:  # an empty label, or one that is too long
            end = partial(answer.set_exception, OSError("that cannot be a host's name"))
        except BaseException as error:
            end = partial(answer.set_exception, error)
        finally:
            _shares.leave(owner)
        with suppress(RuntimeError):  # the event loop is closed, so there is no waiting caller
            loop.call_soon_threadsafe(lambda: None if answer.done() else end())

    try:
        threading.Thread(target=run, name="lookup", daemon=True).start()
    except RuntimeError as error:
        _shares.leave(owner)
        raise OSError("no thread for the lookup of a name") from error
    return await answer
