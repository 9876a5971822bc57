"""The address or the Unix socket that the server listens on."""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager

from gateway.config import Config
from gateway.errors import ConfigurationError


def check_address(config: Config) -> None:
    """Raise `ConfigurationError` if a server could not listen on the configured address or path. A server
    that listens there already is not disturbed."""
    path = config.server.unix_socket
    if path is None or os.name != "posix":
        with bound(config):
            return
    from gateway.server.unix_socket import check_unix_socket

    check_unix_socket(path)


def bound(config: Config) -> AbstractContextManager[socket.socket]:
    """A context with a socket that is bound to the configured address or path and does not listen yet. Raises
    `ConfigurationError`."""
    path = config.server.unix_socket
    if path is None:
        return bind(config)
    if os.name != "posix":
        raise ConfigurationError(
            "This system has no Unix sockets: remove unix_socket under [server]."
        )
    from gateway.server.unix_socket import bound_unix_socket

    return bound_unix_socket(path, int(config.server.unix_socket_mode, 8))


def bind(config: Config) -> socket.socket:
    """A socket that is bound to the configured host and port and does not listen yet."""
    host, port = config.server.host, config.server.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(
            f"The server cannot listen on {host}: {error.strerror or error}. Set another host under [server]."
        ) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise _cannot_listen(host, port, error) from error
    return listening


def listen(bound: socket.socket, backlog: int) -> None:
    """Listen on a bound socket. Raises `ConfigurationError` if another process has begun to listen on the address since the
    socket was bound: several sockets may be bound to one address as long as none listens."""
    if bound.family == socket.AF_UNIX:
        bound.listen(backlog)  # nobody else can be bound to its path
        return
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(backlog)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The server cannot listen on {host} port {port}: {error.strerror or error}. "
        "Stop what listens there, or choose another with --port."
    )


def address(listening: socket.socket, *, tls: bool = False) -> str:
    """The URL at which a listening socket is reached from this machine. That of a Unix socket has the host `localhost`."""
    if listening.family == socket.AF_UNIX:
        return "https://localhost" if tls else "http://localhost"
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  # compared with, not bound to
        host = "127.0.0.1"
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
