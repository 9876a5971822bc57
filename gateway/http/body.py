"""Reading request bodies within the server's limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping

from litestar.types import Receive

from gateway.base.errors import GatewayError, InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from gateway.http.compressed import CODINGS, decompressed
from gateway.http.connections.client_connection import connection_of
from gateway.http.state import HttpRequest, context_of
from gateway.services import Services

_JSON_TYPE = re.compile(rb"application/[a-z0-9!#$&^_.-]+\+json")


class BodyTimeout(GatewayError):
    """The body did not arrive in time: 408."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"


async def read_body(
    request: HttpRequest, services: Services, *, may_be_empty: bool = False
) -> bytes:
    """The whole, undecoded body of a JSON request, decompressed if needed.

    Limited to `server.max_body_bytes` bytes, both before and after decompression, and to `server.body_timeout` seconds.
    """
    context = context_of(request)
    headers = context.headers
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    # `RequestGuard` ensures that a request without a content type has no body.
    if media_type not in (b"application/json", b"") and not _JSON_TYPE.fullmatch(media_type):
        raise UnsupportedMediaType(
            f"The content type '{media_type.decode('latin-1')[:100]}' is not supported. Send JSON with the header "
            "'content-type: application/json'."
        )
    config = services.config.server
    coding = _coding(headers) if b"content-encoding" in headers else None
    if coding is not None and coding not in CODINGS:
        raise _unsupported(coding, "gzip, zstd")
    _check_length(headers, config.max_body_bytes)
    connection = connection_of(request.scope)
    if connection is not None and connection.has_whole_body:
        body = await _read_all(request.receive, config.max_body_bytes)
    else:
        # One timeout for the whole body, because a timeout for each part costs several times as much.
        try:
            async with asyncio.timeout(config.body_timeout):
                body = await _read_all(request.receive, config.max_body_bytes)
        except TimeoutError:
            raise _too_slow(config.body_timeout) from None
    if coding is not None and body:
        body = await decompressed(body, coding, config.max_body_bytes)
    if context.content is not None:
        context.content.read(body)
    if not body and not may_be_empty:
        raise InvalidRequest("The body is empty. Send a JSON object.")
    return body


async def _read_all(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        part, more = await _part(receive)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def stream_body(
    request: HttpRequest, services: Services, limit: int
) -> AsyncGenerator[bytes, None]:
    """A body of any type as it arrives: at most `limit` bytes, within `server.body_timeout` seconds."""
    seconds = services.config.server.body_timeout
    headers = context_of(request).headers
    if (coding := _coding(headers)) is not None:
        raise _unsupported(coding, "identity")
    _check_length(headers, limit)
    deadline = asyncio.get_running_loop().time() + seconds
    receive = request.receive
    size = 0
    more = True
    while more:
        try:
            async with asyncio.timeout_at(deadline):
                part, more = await _part(receive)
        except TimeoutError:
            raise _too_slow(seconds) from None
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if part:
            yield part


def _coding(headers: Mapping[bytes, bytes]) -> str | None:
    """The content coding of the body; None if it is not compressed."""
    sent = headers.get(b"content-encoding")
    if sent is None:
        return None
    coding = sent.decode("latin-1").strip().lower()
    return None if coding in ("", "identity") else coding


def _unsupported(coding: str, supported: str) -> UnsupportedMediaType:
    return UnsupportedMediaType(
        f"The content encoding '{coding[:100]}' is not supported. Send the body uncompressed"
        f"{'' if supported == 'identity' else ', or with one of: ' + supported}.",
        headers={"accept-encoding": supported},
    )


def _check_length(headers: Mapping[bytes, bytes], limit: int) -> None:
    """Reject a body whose `content-length` exceeds `limit`."""
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """The next part of a body, and whether more follows."""
    message = await receive()
    if message["type"] != "http.request":
        # The client has disconnected. It will not read the answer, and this is not an error of the server.
        raise InvalidRequest("The body is incomplete: the client has disconnected.")
    return message.get("body", b""), message.get("more_body", False)


def _too_slow(seconds: float) -> BodyTimeout:
    return BodyTimeout(
        f"The body did not arrive within {seconds:g} seconds.", headers={"connection": "close"}
    )


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than this server's limit of {limit} bytes.")
