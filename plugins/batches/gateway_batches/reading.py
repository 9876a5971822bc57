"""Reads the lines of a batch's file, which may hold anything."""

from __future__ import annotations

from typing import IO, Final

import msgspec
from msgspec import Raw, Struct

from gateway_batches.objects import BatchError

_MAX_LINES: Final = 500
_MAX_BYTES: Final = 4_194_304
"""Lines and bytes that are read at once."""
_LONGEST_ID: Final = 512
_BOM: Final = b"\xef\xbb\xbf"


class RequestLine(Struct, frozen=True, kw_only=True):
    """A line that can be sent."""

    number: int
    """From 1."""
    custom_id: str
    model: str | None
    body: bytes


class BadLine(Struct, frozen=True, kw_only=True):
    """A line that cannot be sent."""

    number: int
    custom_id: str | None
    error: BatchError


class _Fields(Struct):
    """A line's fields. Others are skipped and not kept, however many there are."""

    custom_id: Raw = Raw()
    method: Raw = Raw()
    url: Raw = Raw()
    body: Raw = Raw()


class _Body(Struct):
    model: str | None = None
    stream: bool | None = None
    background: bool | None = None


class LineReader:
    """Reads a file of requests to one endpoint, some lines at a time. Its memory does not depend on the file's size."""

    def __init__(self, content: IO[bytes], *, endpoint: str, max_line_bytes: int) -> None:
        self._content = content
        self._endpoint = endpoint
        self._max = max_line_bytes
        self._number = 0

    def read(self) -> list[RequestLine | BadLine]:
        """The next lines; none at the end of the file. Empty lines are skipped, and counted. Blocks."""
        lines: list[RequestLine | BadLine] = []
        size = seen = 0
        while (seen < _MAX_LINES and size < _MAX_BYTES) or not lines:
            data = self._content.readline(self._max + 2)
            if not data:
                break
            seen += 1
            size += len(data)
            self._number += 1
            too_long = len(data.rstrip(b"\r\n")) > self._max
            while too_long and not data.endswith(b"\n"):
                data = self._content.readline(_MAX_BYTES)
                if not data:
                    break
            if too_long:
                lines.append(
                    self._bad("line_too_long", f"The line is longer than {self._max} bytes.")
                )
                continue
            if self._number == 1:
                data = data.removeprefix(_BOM)
            if data := data.strip():
                lines.append(self._parsed(data))
        return lines

    def _parsed(self, data: bytes) -> RequestLine | BadLine:
        try:
            fields = msgspec.json.decode(data, type=_Fields)
            # Otherwise strings that are not UTF-8 would be found later, or never.
            data.decode("utf-8")
        except RecursionError:
            return self._bad("invalid_json_line", "This line is nested too deeply.")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._bad("invalid_json_line", "This line is not a JSON object in UTF-8.")
        custom_id = _string(fields.custom_id)
        if not fields.custom_id:
            return self._bad(
                "missing_required_parameter", "The line has no custom_id.", "custom_id"
            )
        if custom_id is None or not 0 < len(custom_id) <= _LONGEST_ID:
            return self._bad(
                "invalid_custom_id",
                f"custom_id must be a string of 1 to {_LONGEST_ID} characters.",
                "custom_id",
            )
        if _string(fields.method) != "POST":
            return self._bad("invalid_method", "method must be 'POST'.", "method", custom_id)
        if _string(fields.url) != self._endpoint:
            return self._bad(
                "invalid_url",
                f"url must be the endpoint of the batch, '{self._endpoint}'.",
                "url",
                custom_id,
            )
        body = bytes(fields.body)
        if not body.startswith(b"{"):
            return self._bad("invalid_body", "body must be an object.", "body", custom_id)
        known = _body(body)
        for name in ("stream", "background"):
            if getattr(known, name):
                return self._bad(
                    "unsupported_parameter",
                    f"{name} must not be true: the result of a line is one answer.",
                    f"body.{name}",
                    custom_id,
                )
        return RequestLine(number=self._number, custom_id=custom_id, model=known.model, body=body)

    def _bad(
        self, code: str, message: str, param: str | None = None, custom_id: str | None = None
    ) -> BadLine:
        error = BatchError(code=code, message=message, line=self._number, param=param)
        return BadLine(number=self._number, custom_id=custom_id, error=error)


def _string(raw: Raw) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str) if raw else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _body(body: bytes) -> _Body:
    """What the batch looks at; all else, and whether it is valid, is left to the API."""
    try:
        return msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, RecursionError):
        return _Body()
