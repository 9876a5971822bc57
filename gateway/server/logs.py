"""Logging configuration."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from gateway.server.redaction import Redactor

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class RedactingFormatter(logging.Formatter):
    """Removes secrets from log entries, including tracebacks."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.clean(super().format(record))


def set_up_logging(level: str, secrets: Iterable[str] = ()) -> None:
    """Log to stderr: this program and uvicorn from `level` on (`debug`, `info`, …), libraries from warnings on.

    `secrets`, and anything that looks like a credential, are removed from all lines.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(Redactor(secrets)))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("gateway", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
