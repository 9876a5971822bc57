"""A client that leaves before its answer is there."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit


@contextmanager
def leaving_client(base_url: str, body: dict[str, Any]) -> Iterator[None]:
    """Ask `/responses` and read nothing; leaving the context closes the connection."""
    place = urlsplit(base_url)
    content = json.dumps(body).encode()
    head = (
        f"POST {place.path}/responses HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        connection.sendall(head.encode() + content)
        yield
