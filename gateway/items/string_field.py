"""Streaming extraction of one string field of a JSON object.

Models see a free-text tool as a function with one string parameter (`input` of a custom tool, `code` of the code
interpreter). The client receives the text itself, streamed.
"""

from __future__ import annotations

import msgspec

from gateway.wire.json_text import decode_text

_ESCAPES = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_SPACE = " \t\n\r"


class StringFieldReader:
    """Converts the pieces of `{"<field>": "<text>"}` to the pieces of `<text>`.

    The result depends on the characters fed, not on how they were chunked. Other input is passed through unchanged:
    immediately if it does not begin with `{`, otherwise at the end.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._head: list[str] = []
        self._mode = "head"
        self._escape = ""
        self._high: int | None = None

    def feed(self, text: str) -> str:
        """Read `text`. Returns the part of the field's value that it completes, which may be empty."""
        match self._mode:
            case "raw":
                return text
            case "string":
                return self._string(text)
            case "done":
                return ""
            case "other":
                self._head.append(text)
                return ""
            case _:
                return self._prefix(text)

    def finish(self, *, cut: bool = False) -> str:
        """Return the input that was held back because it looked like the object but did not become one.

        `cut`: whether a limit ended the object. Syntax before its text is then dropped.
        """
        mode, self._mode = self._mode, "done"
        if mode not in ("head", "other") or (cut and mode == "head"):
            return ""
        return self._field_of("".join(self._head))

    def _prefix(self, text: str) -> str:
        self._head.append(text)
        head = "".join(self._head)
        self._head = [head]
        expected = ["{", f'"{self._field}"', ":", '"']
        at = 0
        for part in expected:
            while at < len(head) and head[at] in _SPACE:
                at += 1
            found = head[at : at + len(part)]
            if found == part:
                at += len(part)
                continue
            if part.startswith(found):
                return ""  # more input needed
            if part == "{":
                self._mode = "raw"
                self._head = []
                return head
            self._mode = "other"  # an object of another shape: decided in `finish`
            return ""
        self._mode = "string"
        self._head = []
        return self._string(head[at:])

    def _string(self, text: str) -> str:
        out: list[str] = []
        at = 0
        size = len(text)
        while at < size:
            if self._escape:
                self._escape += text[at]
                at += 1
                self._unescape(out)
                continue
            stop = at
            while stop < size and text[stop] not in '\\"':
                stop += 1
            if stop > at:
                self._end_lone_surrogate(out)
                out.append(text[at:stop])
            at = stop
            if at == size:
                break
            if text[at] == '"':
                self._end_lone_surrogate(out)
                self._mode = "done"
                break
            self._escape = "\\"
            at += 1
        return "".join(out)

    def _unescape(self, out: list[str]) -> None:
        escape = self._escape
        if escape[1] != "u":
            self._end_lone_surrogate(out)
            out.append(_ESCAPES.get(escape[1], escape))
            self._escape = ""
            return
        if len(escape) < 6:
            return
        self._escape = ""
        try:
            code = int(escape[2:], 16)
        except ValueError:
            self._end_lone_surrogate(out)
            out.append(escape)
            return
        if 0xDC00 <= code < 0xE000 and self._high is not None:
            out.append(chr(0x10000 + ((self._high - 0xD800) << 10) + (code - 0xDC00)))
            self._high = None
            return
        self._end_lone_surrogate(out)
        if 0xD800 <= code < 0xDC00:
            self._high = code
        else:
            out.append("�" if 0xDC00 <= code < 0xE000 else chr(code))

    def _end_lone_surrogate(self, out: list[str]) -> None:
        """Handle a high surrogate without a low one, which is not valid text."""
        if self._high is not None:
            self._high = None
            out.append("�")

    def _field_of(self, text: str) -> str:
        try:
            value = decode_text(text.encode("utf-8", "replace"))
        except msgspec.DecodeError:
            return text
        if isinstance(value, dict) and isinstance(value.get(self._field), str):
            return str(value[self._field])
        return "" if value == {} else text
