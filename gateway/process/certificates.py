"""The server's certificate and the certificate authorities of its clients, read again when their files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509

from gateway.base.errors import ConfigurationError
from gateway.base.task_context import running_task
from gateway.config import ServerConfig
from gateway.http.connections.connections import ServingConfig
from gateway.startup.settings import EncryptedKey, check_tls, refuse_passphrase

logger = logging.getLogger("gateway.process.certificates")

WATCH_SECONDS: Final = 0.5
"""Interval between checks of the files, in seconds. Changed files are read only after two checks have found the same
state, because the certificate and its key are two files that are not written at the same moment."""
WARN_SECONDS: Final = 7 * 86_400
"""How long before the certificate expires the log warns of it, in seconds."""

_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
_USED_STILL = "new connections get the certificate that was read before"


class WatchedCertificates:
    """The files `tls_certificate`, `tls_key` and `tls_client_ca` of a server that speaks TLS.

    Each handshake uses the files that were read last. Open connections are not affected.
    """

    def __init__(
        self,
        server: ServerConfig,
        settings: ServingConfig,
        report_expiry: Callable[[float], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`settings` must be loaded. `report_expiry` is called for each certificate with the Unix time at which it
        expires."""
        self._server = server
        self._settings = settings
        self._report_expiry = report_expiry
        self._clock = clock
        self._expires: float | None = None
        self._warned: str | None = None
        self._read = self._seen = _stamp(server)
        self._authorities = _content(server.tls_client_ca)
        assert settings.ssl is not None, "the server speaks TLS"
        self._context: ssl.SSLContext = settings.ssl
        # The files may have changed since the settings were loaded.
        with suppress(ConfigurationError):
            self._context = self._load()
        if server.tls_client_ca is not None:
            # A resumed session would not be verified again.
            settings.ssl.num_tickets = 0
        settings.ssl.sni_callback = self._choose
        self._note_expiry()

    def _choose(
        self, connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext
    ) -> int | None:
        """Use the current context for a handshake. OpenSSL calls this in each one, whether or not the client names a
        host."""
        if self._context is not first:
            connection.context = self._context
        return None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Read changed files again while the context is entered. Files with a mistake are not used."""
        async with running_task(self._watch()):
            yield

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                stamp = await asyncio.to_thread(_stamp, self._server)
                if stamp != self._read and stamp == self._seen:
                    await self.read_again()
                self._seen = stamp
                self._warn_of_expiry()
            except Exception:
                # The task must go on: without it, renewed certificates would not be used.
                logger.exception("looking at the files of TLS failed; %s", _USED_STILL)

    async def read_again(self) -> None:
        """Read the files, and use them from now on. If they have a mistake, log an error and keep the previous ones."""
        self._read = await asyncio.to_thread(_stamp, self._server)
        try:
            authorities = await asyncio.to_thread(_content, self._server.tls_client_ca)
            context = await asyncio.to_thread(self._load)
        except ConfigurationError as error:
            logger.error("%s %s.", error, _USED_STILL.capitalize())  # noqa: TRY400  # a sentence, not a trace
            return
        if authorities != self._authorities:
            self._authorities = authorities
            self._settings.limits.sessions_since = self._clock()
        self._context = context
        self._note_expiry()
        until = "" if self._expires is None else f", valid until {_date(self._expires)}"
        logger.info("the certificate of %s was read again%s", self._server.tls_certificate, until)

    def _load(self) -> ssl.SSLContext:
        """Create an SSL context with the same settings as at the start. Raises `ConfigurationError`."""
        server, first = self._server, self._settings
        assert server.tls_certificate is not None
        check_tls(server)
        context = ssl.SSLContext(first.ssl_version)
        try:
            context.load_cert_chain(server.tls_certificate, server.tls_key, refuse_passphrase)
            context.verify_mode = ssl.VerifyMode(first.ssl_cert_reqs)
            if server.tls_client_ca is not None:
                context.load_verify_locations(server.tls_client_ca)
            if first.ssl_ciphers:
                context.set_ciphers(first.ssl_ciphers)
        except EncryptedKey:
            raise ConfigurationError(
                "server.tls_key has a passphrase, which only a start asks for: restart the server to use the changed files."
            ) from None
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"server.tls_certificate, tls_key or tls_client_ca cannot be used: {error}."
            ) from error
        return context

    def _note_expiry(self) -> None:
        self._warned = None
        self._expires = _expiry(_content(self._server.tls_certificate))
        if self._expires is not None:
            self._report_expiry(self._expires)
            self._warn_of_expiry()

    def _warn_of_expiry(self) -> None:
        if self._expires is None:
            return
        left = self._expires - self._clock()
        problem = "has expired" if left <= 0 else "expires soon" if left < WARN_SECONDS else None
        if problem is not None and problem != self._warned:
            self._warned = problem
            logger.warning(
                "the certificate of %s %s: it is valid until %s",
                self._server.tls_certificate, problem, _date(self._expires),
            )  # fmt: skip


def _stamp(server: ServerConfig) -> _Stamp:
    """A value that changes when one of the files changes, or is a link whose target changes."""
    found: list[tuple[int, int, int] | None] = []
    for path in (server.tls_certificate, server.tls_key, server.tls_client_ca):
        try:
            status = None if path is None else Path(path).stat()
        except OSError:
            status = None
        found.append(status and (status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _content(path: str | None) -> bytes:
    try:
        return b"" if path is None else Path(path).read_bytes()
    except OSError:
        return b""


def _expiry(pem: bytes) -> float | None:
    """The Unix time at which the first certificate expires; None if it cannot be read."""
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        return certificates[0].not_valid_after_utc.timestamp()
    except (ValueError, IndexError, OverflowError):
        return None


def _date(unix_time: float) -> str:
    return datetime.fromtimestamp(unix_time, UTC).strftime("%Y-%m-%d %H:%M UTC")
