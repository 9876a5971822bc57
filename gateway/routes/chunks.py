"""The short way of a stream's bytes to the socket.

uvicorn's `send` looks at every message anew and costs about a microsecond of each token. Where the server is uvicorn and
the way is free, a chunk is written as uvicorn would; in all other cases the caller sends it by ASGI.
"""

from __future__ import annotations

from collections.abc import Callable

from litestar.types import Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def chunk_writer(send: Send) -> Callable[[bytes], bool]:
    """What writes a part of a body that has begun. False: it wrote nothing, and `send` shall, which waits its turn."""
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or not cycle.chunked_encoding:
        return _never
    flow, transport = cycle.flow, cycle.transport

    def write(body: bytes) -> bool:
        if flow.write_paused or cycle.disconnected or not body:
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    return write


def _never(body: bytes) -> bool:
    return False
