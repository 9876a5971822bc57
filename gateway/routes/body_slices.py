"""Large bodies of answers are sent in slices, so that a server serves others between them."""

from __future__ import annotations

from typing import Final

from litestar.types import Send

SLICE: Final = 262_144
"""Bytes of a body that are sent at once. A server waits for the client to read most of them before it takes more."""


async def send_body(send: Send, body: bytes, *, at: int = 0) -> None:
    """Send `body` from `at` on, and end the answer."""
    more = True
    while more:
        end = at + SLICE
        more = end < len(body)
        await send({"type": "http.response.body", "body": body[at:end], "more_body": more})
        at = end
