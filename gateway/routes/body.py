"""Reading a request's body, within the server's limits."""

from __future__ import annotations

import asyncio

from gateway.errors import GatewayError, InvalidRequest, PayloadTooLarge
from gateway.routes.state import HttpRequest


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


async def read_json_body(request: HttpRequest, *, limit: int, seconds: float) -> bytes:
    """The whole body, at most `limit` bytes, within `seconds`; not yet decoded."""
    headers = request.headers
    media_type = headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType(
            f"The content type '{media_type}' is not supported. Send 'application/json'."
        )
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType(
            f"The content encoding '{encoding}' is not supported. Send the body uncompressed."
        )
    too_large = PayloadTooLarge(f"The body is larger than this server's limit of {limit} bytes.")
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise BodyTimeout(
            f"The body did not arrive within {seconds:g} seconds.",
            headers={"connection": "close"},
        ) from None
    if not parts:
        raise InvalidRequest("The body is empty. Send a JSON object.")
    return parts[0] if len(parts) == 1 else b"".join(parts)
