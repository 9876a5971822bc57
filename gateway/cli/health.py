"""`gateway health`."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from gateway.base.errors import ConfigurationError
from gateway.commands.arguments import Commands, add_config_argument, listening_url, reached
from gateway.commands.terminal_text import visible
from gateway.config import ServerConfig, load_listening

DESCRIPTION = """\
Ask the server of this configuration on this machine whether it is alive (/health), or ready for requests (/ready).
The address, the Unix socket and TLS are those of the configuration and the environment, as for `gateway serve`.
Prints one line. The exit code is 0 or 1, as the HEALTHCHECK of an image needs it.
"""
_MOST_BYTES = 64 * 1024
"""Maximum number of bytes of an answer that are read."""


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "health",
        help="ask the running server whether it is alive",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--ready", action="store_true", help="ask whether its engines and its store can serve, too"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=4.0, metavar="SECONDS",
        help="for all of it (default: 4)",
    )  # fmt: skip
    parser.add_argument("--host", help="if `gateway serve` was given one")
    parser.add_argument("--port", type=int, help="likewise")
    parser.add_argument("--unix-socket", metavar="PATH", help="likewise")
    parser.add_argument(
        "--client-certificate", type=Path, metavar="FILE",
        help="the certificate to show where tls_client_ca asks for one, with its key, in PEM (default: the server's own)",
    )  # fmt: skip
    add_config_argument(parser)
    parser.set_defaults(command=run)


def seconds(written: str) -> float:
    """A time limit of the command line. Raises `ValueError`."""
    limit = float(written)
    if not 0 < limit <= 3600:
        raise ValueError
    return limit


def run(arguments: argparse.Namespace) -> int:
    """Ask the server and print one line. Returns 0 if it is alive, or ready, and otherwise 1."""
    answered: list[tuple[bool, str]] = []

    def ask() -> None:
        try:
            answered.append(_ask(arguments))
        except (ConfigurationError, _Unhealthy) as error:
            answered.append((False, str(error)))
        except (OSError, http.client.HTTPException, ValueError) as error:
            answered.append((False, _reason(error)))

    # In a thread, because the timeout limits neither name lookups nor a server that sends one byte per second.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(arguments.timeout)
    well, said = answered[0] if answered else (False, f"no answer within {arguments.timeout:g} s")
    print(
        f"{'ready' if arguments.ready else 'alive'}: {'yes' if well else 'no'}: {' '.join(visible(said).split())}"
    )
    return 0 if well else 1


class _Unhealthy(Exception):
    """The state of the server is known, and it is not alive, or not ready."""


def _ask(arguments: argparse.Namespace) -> tuple[bool, str]:
    overrides = {
        "host": arguments.host, "port": arguments.port, "unix_socket": arguments.unix_socket,
    }  # fmt: skip
    server = load_listening(arguments.config, os.environ, server=overrides)
    connection = _Connection(server, arguments.client_certificate)
    path = "/ready" if arguments.ready else "/health"
    try:
        try:
            connection.request("GET", path, headers={"connection": "close"})
            response = connection.getresponse()
        except (ssl.SSLError, ConnectionError) as error:
            if not (connection.greeted and server.tls_client_ca) or _is_ours(error):
                raise
            if arguments.ready:
                _no_certificate()
            return True, f"{connection.url} asks for a certificate of the client (tls_client_ca)"
        answer = response.read(_MOST_BYTES)
    finally:
        connection.close()
    said = f"{connection.url}{path} answers {response.status}"
    return response.status == 200, f"{said}{_message(answer)}"


def _no_certificate() -> NoReturn:
    raise _Unhealthy(
        "the server does not accept this client: name a certificate of tls_client_ca with --client-certificate"
    )


def _is_ours(error: Exception) -> bool:
    """Whether this side ended the connection, because of what the server sent."""
    return isinstance(error, ssl.SSLError) and "ALERT" not in (error.reason or "ALERT")


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.HTTPException):
        return f"the answer is no HTTP ({type(error).__name__})"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _message(answer: bytes) -> str:
    """The message of an error in OpenAI's form, after a colon; empty if there is none."""
    with suppress(ValueError, KeyError, TypeError):
        return f": {json.loads(answer)['error']['message']}"
    return ""


class _Connection(http.client.HTTPConnection):
    """A connection to the server on this machine: by TCP or Unix socket, with or without TLS. Uses no proxy.

    The server's certificate is not verified: it is seldom valid for the address of this machine, and nothing secret is
    sent.
    """

    def __init__(self, server: ServerConfig, certificate: Path | None) -> None:
        super().__init__("localhost")
        self._server = server
        self._certificate = certificate
        self.greeted = False
        """Whether the server has answered in a TLS handshake."""

    @property
    def url(self) -> str:
        """The server's address, for messages."""
        server = self._server
        if server.unix_socket is not None:
            scheme = "http" if server.tls_certificate is None else "https"
            return f"{scheme}+unix:{server.unix_socket}:"
        return listening_url(server)

    def connect(self) -> None:
        server = self._server
        if server.unix_socket is not None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.connect(server.unix_socket)
        elif not server.port:
            raise _Unhealthy("port = 0 selects a free port: name it with --port")
        else:
            try:
                self.sock = socket.create_connection((reached(server.host), server.port))
            except OSError as error:
                raise _Unhealthy(f"nothing answers at {self.url}: {_reason(error)}") from error
        if server.tls_certificate is None:
            return
        context = self._context()
        try:
            self.sock = context.wrap_socket(self.sock)
        except ssl.SSLError as error:
            self.greeted = "ALERT" in (error.reason or "")
            raise
        self.greeted = True

    def _context(self) -> ssl.SSLContext:
        server = self._server
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if self._certificate is not None:
            context.load_cert_chain(self._certificate)
        elif server.tls_client_ca is not None and server.tls_certificate is not None:
            # A key with a passphrase, or one that only the server can read, is not used.
            with suppress(OSError, ssl.SSLError, ValueError):
                context.load_cert_chain(server.tls_certificate, server.tls_key, lambda: "")
        return context
