"""Reserving ports for servers that a test starts later, or again.

If a test only looks up a free port, another program may have it when the server starts: the system assigns it to
servers that ask for any port, and to outgoing connections. It does not assign a port to which a socket is bound.
"""

from __future__ import annotations

import socket

_LAST = 65_535


def free_port(*further: int) -> int:
    """A TCP port on which no server listens, and which the system does not assign while this process runs.

    A server that sets SO_REUSEADDR, as almost all do, may listen on it, end, and listen on it again. While no server
    listens, connections are refused. `further` are distances to other ports that are reserved as well: a Redis node
    listens on a second port, 10,000 above the first.
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
            each_held.detach()  # stays open until this process ends
        return port


def held_port(port: int = 0) -> socket.socket:
    """A socket that reserves `port` (0: any free port) until it is closed; see `free_port`. It does not listen.

    Raises `OSError` if the port is in use or reserved.
    """
    if port > _LAST:
        raise OSError(f"There is no port {port}.")
    made = socket.socket()
    try:
        made.bind(("", port))
        # Not before: otherwise two sockets could reserve the same port.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        made.close()
        raise
    return made
