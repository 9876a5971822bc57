"""Where log lines go, and which."""

from __future__ import annotations

import logging
import sys

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def set_up_logging(level: str) -> None:
    """Log to stderr: this program and uvicorn from `level` on (`debug`, `info`, …), libraries from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("gateway", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
