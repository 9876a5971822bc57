"""Messages to the service manager that started the server (systemd, `Type=notify`)."""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger("gateway.process.service_manager")


def notify(state: str) -> None:
    """Send a state, such as `READY=1`, to the socket that `NOTIFY_SOCKET` names. Does nothing without it.

    The protocol is that of sd_notify(3). If the manager does not listen, a warning is logged.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.connect(address)
            sending.send(state.encode())
    except OSError as error:
        logger.warning("the service manager was not told %s: %s", state, error)
