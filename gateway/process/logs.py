"""Logging configuration."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.config import LogFormat
from gateway.config.redaction import Redactor
from gateway.observe.request_context import current_context
from gateway.observe.request_log import FIELDS, TEXTS
from gateway.process.log_stream import log_handler

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Matches control characters of terminals, and characters that programs may treat as the end of a line."""
_CONTINUED = "\n    "


class RedactingFormatter(logging.Formatter):
    """Formats log entries as lines of text with the id of the request. Secrets are removed, also from tracebacks.

    Control characters are escaped, and all lines of an entry except the first are indented, so that text from a
    client or another server cannot look like a log entry of its own.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        fields = getattr(record, FIELDS, None)
        if fields is not None:
            return _plain(line) + "".join([f" {name}={value}" for name, value in fields.items()])
        clean = self._redactor.clean
        line = _plain(clean(line))
        for name, text in getattr(record, TEXTS, {}).items():
            # JSON keeps the text on one line. Secrets are removed first, before quotes are escaped.
            line += f" {name}={json.dumps(clean(text))}"
        return line

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is logging's
        request = current_context()
        if request is not None:
            record.message = f"[{request.id}] {record.message}"
        return super().formatMessage(record)


def _plain(entry: str) -> str:
    """`entry` with control characters escaped and all lines except the first indented."""
    if entry.isprintable():
        return entry
    escaped = _CONTROL.sub(lambda found: repr(found[0])[1:-1], entry)
    return escaped.replace("\n", _CONTINUED)


class JsonFormatter(logging.Formatter):
    """Formats log entries as lines of JSON with the id of the request. Secrets are removed, also from tracebacks.

    Each entry has `time`, `level`, `logger` and `message`. It has `request_id` if it was logged for a request, and
    `exception` if there is a traceback. The entry for the end of a request also has the request's fields.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        clean = self._redactor.clean
        fields = getattr(record, FIELDS, None)
        message = record.getMessage()
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message if fields is not None else clean(message),
        }
        request = current_context()
        if request is not None:
            entry["request_id"] = request.id
        if fields is not None:
            entry |= fields
        for name, text in getattr(record, TEXTS, {}).items():
            entry[name] = clean(text)
        trace = ""
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        if record.stack_info:
            trace = f"{trace}\n{self.formatStack(record.stack_info)}".lstrip()
        if trace:
            entry["exception"] = clean(trace)
        return msgspec.json.encode(entry).decode()


def set_up_logging(
    level: str, secrets: Iterable[str] = (), *, log_format: LogFormat = "text"
) -> None:
    """Log to stderr: messages of the gateway and uvicorn from `level` on (`debug`, `info`, …), warnings of other
    libraries.

    `secrets`, and text that looks like a credential, are removed from all lines.
    """
    handler = log_handler(sys.stderr)
    formatter = JsonFormatter if log_format == "json" else RedactingFormatter
    handler.setFormatter(formatter(Redactor(secrets)))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("gateway", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
