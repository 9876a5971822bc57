"""TLS contexts for verifying servers' certificates."""

from __future__ import annotations

import ssl
from urllib.request import HTTPSHandler


def accept_private_authorities(context: ssl.SSLContext) -> ssl.SSLContext:
    """Make a client's context verify certificates in the same way on all versions of Python, and return it.

    Since Python 3.13, authorities are refused if their certificates lack parts that RFC 5280 requires, such as
    `keyUsage`. Private authorities often lack them, and OpenSSL and curl accept such authorities. Also since 3.13, a
    trusted intermediate authority needs no root.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def web_tls_context(*, trust_env: bool = True) -> ssl.SSLContext:
    """A context for web servers. It trusts the system's authorities, or with `trust_env` the ones that `SSL_CERT_FILE`
    or `SSL_CERT_DIR` names. Creating it takes tens of milliseconds."""
    import httpx2  # optional, and present wherever URLs are fetched

    return accept_private_authorities(httpx2.create_ssl_context(trust_env=trust_env))


def https_handler() -> HTTPSHandler:
    """An HTTPS handler for `urllib` openers that trusts the same authorities as `web_tls_context`."""
    return HTTPSHandler(context=accept_private_authorities(ssl.create_default_context()))
