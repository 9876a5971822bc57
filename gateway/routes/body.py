"""Reading a request's body, within the server's limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from litestar.exceptions import InternalServerException

from gateway.errors import GatewayError, InvalidRequest, PayloadTooLarge
from gateway.routes.state import HttpRequest, services_of


class UnsupportedMediaType(GatewayError):
    """The body is not JSON, or is compressed: 415."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_media_type"


class BodyTimeout(GatewayError):
    """The body did not arrive in time: 408."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"


async def read_body(request: HttpRequest, *, may_be_empty: bool = False) -> bytes:
    """The whole body of a JSON request, not yet decoded.

    At most `server.max_body_bytes`, within `server.body_timeout` seconds; both are the server's configuration.
    """
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType(
            f"The content type '{media_type}' is not supported. Send 'application/json'."
        )
    limit = services_of(request).config.server.max_body_bytes
    parts = [part async for part in stream_body(request, limit)]
    if not parts and not may_be_empty:
        raise InvalidRequest("The body is empty. Send a JSON object.")
    return b"".join(parts)


async def stream_body(request: HttpRequest, limit: int) -> AsyncGenerator[bytes, None]:
    """A body of any type as it arrives: at most `limit` bytes, within `server.body_timeout` seconds."""
    seconds = services_of(request).config.server.body_timeout
    headers = request.headers
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType(
            f"The content encoding '{encoding}' is not supported. Send the body uncompressed."
        )
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)
    deadline = asyncio.get_running_loop().time() + seconds
    arriving = request.stream()
    size = 0
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                part = await anext(arriving, None)
        except InternalServerException:
            # So Litestar says that the client has gone. Nobody reads the answer, and nobody is at fault here.
            raise InvalidRequest("The body is incomplete: its sender has gone.") from None
        except TimeoutError:
            raise BodyTimeout(
                f"The body did not arrive within {seconds:g} seconds.",
                headers={"connection": "close"},
            ) from None
        if part is None:
            return
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if part:
            yield part


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than this server's limit of {limit} bytes.")
