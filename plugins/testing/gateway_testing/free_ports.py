"""Ports for servers that a test starts later, or again.

A port that was looked up and let go may be another's when the server starts: the system gives it to whoever asks for any port,
and to connections. A port that a socket is bound to is given to neither.
"""

from __future__ import annotations

import socket

_LAST = 65_535


def free_port(*further: int) -> int:
    """A TCP port that nobody listens on, and that is given to nobody else while this process runs.

    A server that sets SO_REUSEADDR, as almost all do, may listen on it, end, and listen on it again. Until one listens,
    connections are refused. `further` are distances to other ports, which are held likewise: Redis' nodes listen on a second
    one, 10,000 above.
    """
    while True:
        first = held_port()
        port: int = first.getsockname()[1]
        held = [first]
        try:
            for each in further:
                held.append(held_port(port + each))
        except OSError:
            for each_held in held:
                each_held.close()
            continue
        for each_held in held:
            each_held.detach()  # open until this process ends
        return port


def held_port(port: int = 0) -> socket.socket:
    """A socket that keeps `port`, or any one, from others until it is closed, as `free_port` tells. It does not listen.

    Raises `OSError` if anyone else has the port.
    """
    if port > _LAST:
        raise OSError(f"There is no port {port}.")
    made = socket.socket()
    try:
        made.bind(("", port))
        # Not before: two that hold a port could both be bound to it.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        made.close()
        raise
    return made
