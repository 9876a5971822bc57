"""Sends large bodies of answers in slices, so that the server can serve other requests between them."""

from __future__ import annotations

from typing import Final

from litestar.types import Send

SLICE: Final = 262_144
"""Maximum number of bytes of a body that are passed to the server in one message. The server waits until the client has
read most of them before it accepts more."""


async def send_body(send: Send, body: bytes, *, at: int = 0) -> None:
    """Send `body` from `at` on, and end the answer."""
    more = True
    while more:
        end = at + SLICE
        more = end < len(body)
        await send({"type": "http.response.body", "body": body[at:end], "more_body": more})
        at = end
