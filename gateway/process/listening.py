"""The address or Unix socket on which the server listens."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeAlias

from gateway.base.errors import ConfigurationError
from gateway.config import Config


def check_address(config: Config) -> None:
    """Raise `ConfigurationError` if a server could not listen on the configured address or path. Does not disturb a
    server that already listens there."""
    path = config.server.unix_socket
    if path is None or os.name != "posix":
        with bound_all(config):
            return
    from gateway.process.unix_socket import check_unix_socket

    check_unix_socket(path)


def bound(config: Config) -> AbstractContextManager[socket.socket]:
    """A context manager for a socket that is bound to the configured address or path and does not listen yet. Raises
    `ConfigurationError`."""
    path = config.server.unix_socket
    if path is None:
        return bind(config)
    if os.name != "posix":
        raise ConfigurationError(
            "This system has no Unix sockets: remove unix_socket under [server]."
        )
    from gateway.process.unix_socket import bound_unix_socket

    return bound_unix_socket(path, int(config.server.unix_socket_mode, 8))


@contextmanager
def bound_all(config: Config) -> Iterator[list[socket.socket]]:
    """Like `bound`, but for all addresses of the configured host. For example, `localhost` has an IPv4 and an IPv6
    address."""
    if config.server.unix_socket is not None:
        with bound(config) as listening:
            yield [listening]
        return
    with ExitStack() as stack:
        yield [stack.enter_context(each) for each in bind_all(config)]


def bind(config: Config) -> socket.socket:
    """Return a socket that is bound to the configured host and port and does not listen yet. If the host has several
    addresses, the first one is used."""
    return _bind(config, _addresses(config)[0], config.server.port)


def bind_all(config: Config) -> list[socket.socket]:
    """Like `bind`, but for all addresses of the configured host, IPv4 first. All sockets have the same port."""
    addresses = sorted(_addresses(config), key=lambda each: each[0] != socket.AF_INET)
    for _ in range(_PORTS_TRIED):
        listening: list[socket.socket] = []
        unused: ConfigurationError | None = None
        """The error of the last address that was skipped because this machine does not use its address family."""
        try:
            for each in addresses:
                port = listening[0].getsockname()[1] if listening else config.server.port
                try:
                    listening.append(_bind(config, each, port))
                except ConfigurationError as error:
                    if getattr(error.__cause__, "errno", None) not in _UNUSED:
                        raise
                    unused = error
        except ConfigurationError:
            for opened in listening:
                opened.close()
            if config.server.port or not listening:
                raise
            continue  # the port that was free on one address is in use on another
        if unused is not None and not listening:
            raise unused
        return listening
    raise ConfigurationError(
        f"The server found no port that is free on all addresses of {config.server.host}. Set one with --port."
    )


_PORTS_TRIED = 20
_UNUSED = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_Address: TypeAlias = tuple[int, int, int, tuple[object, ...]]
"""Address family, socket type, protocol, and socket address. Its port is ignored."""


def _addresses(config: Config) -> list[_Address]:
    """The addresses of the configured host. A host that is not a name has one."""
    host = config.server.host
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _no_such_host(host, error) from error
    addresses: dict[tuple[object, ...], _Address] = {}
    for family, kind, protocol, _, address in found:
        addresses.setdefault(address, (family, kind, protocol, address))
    is_name = bool(host) and not all(character in "0123456789abcdefABCDEF.:" for character in host)
    return list(addresses.values()) if is_name else [*addresses.values()][:1]


def _bind(config: Config, to: _Address, port: int) -> socket.socket:
    family, kind, protocol, (host, _, *more) = to
    try:
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _no_such_host(config.server.host, error) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port, *more))
    except OSError as error:
        listening.close()
        raise _cannot_listen(config.server.host, port, error) from error
    return listening


def _no_such_host(host: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The server cannot listen on {host}: {error.strerror or error}. Set another host under [server]."
    )


def listen(bound: socket.socket, backlog: int) -> None:
    """Listen on a bound socket.

    Raises `ConfigurationError` if another process has begun to listen on the address since the socket was bound.
    Several sockets can be bound to one address as long as none of them listens.
    """
    if bound.family == socket.AF_UNIX:
        bound.listen(backlog)  # no other socket can be bound to its path
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
    """The URL of a listening socket for clients on this machine. For a Unix socket, the host is `localhost`."""
    if listening.family == socket.AF_UNIX:
        return "https://localhost" if tls else "http://localhost"
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  # compared with, not bound to
        host = "127.0.0.1"
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
