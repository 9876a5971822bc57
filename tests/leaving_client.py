"""A client that leaves before its answer is there."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit


@contextmanager
def leaving_client(
    base_url: str,
    body: dict[str, Any],
    path: str = "/responses",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[None]:
    """Ask `path` and read nothing; leaving the context closes the connection."""
    place = urlsplit(base_url)
    content = json.dumps(body).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"POST {place.path}{path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"{more}"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        connection.sendall(head.encode() + content)
        yield
