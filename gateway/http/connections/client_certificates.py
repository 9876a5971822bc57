"""Client certificates of TLS connections, in the form of the ASGI extension `tls`."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

from cryptography import x509

logger = logging.getLogger("gateway.http.connections.client_certificates")

MAX_NAMES: Final = 100
"""Maximum number of alternative names that are passed on for a certificate. Further names are dropped."""


def resumes_session_before(transport: asyncio.BaseTransport, moment: float) -> bool:
    """Whether the connection resumes a TLS session that began before the Unix time `moment`. The client's certificate
    was then verified when the session began, not for this connection."""
    connection = transport.get_extra_info("ssl_object")
    if connection is None or not connection.session_reused:
        return False
    session = connection.session
    return session is None or session.time <= moment


def tls_extension(transport: asyncio.BaseTransport) -> dict[object, object] | None:
    """The value of the ASGI extension `tls` for a connection; None if the server has not verified a client certificate.

    `client_cert_name` is the subject in the form of RFC 4514, such as `CN=worker,O=Example`. In addition to the
    extension's own fields, `client_cert_alternative_names` lists the names of the certificate's extension
    subjectAltName with their kinds, such as `DNS:worker.example.com` or `URI:spiffe://example.com/worker`.
    """
    connection = transport.get_extra_info("ssl_object")
    if connection is None or connection.context.verify_mode != ssl.CERT_REQUIRED:
        return None
    certificate = connection.getpeercert(binary_form=True)
    if certificate is None:
        return None
    try:
        subject = x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
        named = connection.getpeercert().get("subjectAltName", ())
    except ValueError:
        logger.warning("the certificate of a client cannot be read, so that it names no principal")
        return None
    return {
        "client_cert_name": subject or None,
        "client_cert_alternative_names": [
            f"{kind}:{name}" for kind, name in named[:MAX_NAMES] if isinstance(name, str)
        ],
    }
