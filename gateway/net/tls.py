"""How the certificates of servers are checked."""

from __future__ import annotations

import ssl
from urllib.request import HTTPSHandler


def accept_private_authorities(context: ssl.SSLContext) -> ssl.SSLContext:
    """Make a client's context check certificates in the same way on all versions of Python, and return it.

    Python 3.13 began to refuse authorities whose certificates lack what RFC 5280 demands, such as a `keyUsage`. Private
    authorities often lack it, and OpenSSL and curl accept them. Since the same version, an intermediate authority that is
    trusted needs no root.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def web_tls_context(*, trust_env: bool = True) -> ssl.SSLContext:
    """A context for web servers: the system's authorities, or with `trust_env` those that `SSL_CERT_FILE` or
    `SSL_CERT_DIR` names. Takes tens of milliseconds."""
    import httpx2  # optional, and present wherever URLs are fetched

    return accept_private_authorities(httpx2.create_ssl_context(trust_env=trust_env))


def https_handler() -> HTTPSHandler:
    """Of an opener of `urllib`, for certificates of the same authorities."""
    return HTTPSHandler(context=accept_private_authorities(ssl.create_default_context()))
