"""Waiting for a server in another process."""

from __future__ import annotations

import socket
import time


def wait_until_open(port: int, what: str) -> None:
    """Return once `what` listens on the port. Raises `RuntimeError` if it does not within about 30 seconds."""
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the {what} did not start")
