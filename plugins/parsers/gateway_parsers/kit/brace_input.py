"""The text of a custom tool's call in Gemma's syntax, where it is written as it is, in brackets, or as a string."""

from __future__ import annotations

import json
import re
from typing import Final, Literal

from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.coercion import quoted
from gateway_parsers.kit.free_text import custom_arguments
from gateway_parsers.kit.literal_syntax import LiteralSyntax
from gateway_parsers.kit.literals import LiteralValue
from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.reader import may_become, skip

_CLOSER: Final = {"{": "}", "(": ")"}
_JSON: Final = "\"'{"
_INPUT_KEY: Final = re.compile(r"([\"'`]?)input\1[ \t]{0,8}[:=][ \t]{0,8}")
_KEY: Final = re.compile(r"[\w.-]{1,64}[ \t]{0,8}[:=]")
_KEY_SO_FAR: Final = re.compile(r"[\"'`]?[\w.-]{0,64}[\"'`]?[ \t]{0,8}")
_INPUT: Final = re.compile(r"[{(]\s{0,16}([\"'`]?)input\1\s{0,16}[:=]\s{0,16}")
_MAX_INPUT: Final = 64
"""Characters that it and a mark after it have at most."""


def is_object(syntax: LiteralSyntax, text: str, pos: int, *, final: bool) -> bool | None:
    """Whether an object whose first member is the input starts at `pos`; None if more text is needed."""
    hit = _INPUT.match(text, pos)
    if hit is None or hit.end() == len(text):
        waits = len(text) - pos < _MAX_INPUT and not final and _may_be_input(text[pos:])
        return None if waits else False
    mark = syntax.lenient_mark
    if not final and may_become(text, hit.end(), mark) and len(text) - hit.end() < len(mark):
        return None
    if text.startswith(mark, hit.end()):
        return True
    quote = text[hit.end()]
    if quote not in "\"'`":
        return False
    if hit.end() + 1 == len(text) and not final:
        return None
    return not text.startswith(quote * 2, hit.end())  # three quotation marks are no mark


def _may_be_input(text: str) -> bool:
    """Whether text up to the input's value may start with `text`."""
    letters = "".join(text[1:].split()).strip("\"'`")
    return "input".startswith(letters.rstrip(":=").strip("\"'`"))


class BraceInput:
    """Reads what a custom tool's call contains up to the call's end, and returns it as JSON arguments piece by piece."""

    __slots__ = ("_begun", "_closers", "_mark", "_parts", "_schema", "_state", "_syntax", "repairs")

    def __init__(self, syntax: LiteralSyntax, schema: SchemaNode) -> None:
        self.repairs = 1
        self._syntax = syntax
        self._schema = schema
        self._mark = syntax.lenient_mark
        self._state: Literal["start", "held", "text"] = "start"
        self._parts: list[str] = []
        """What was not passed on yet."""
        self._closers = ""
        """The brackets that may end the text, because others precede it."""
        self._begun = False

    def feed(self, text: str) -> str:
        """What `text` adds to the arguments; may be empty."""
        if not text:
            return ""
        self._parts.append(text)
        if self._state == "held" or not text.strip(WHITESPACE):
            return ""
        whole = "".join(self._parts)
        self._parts = [whole]
        if self._state == "start":
            start = self._start(whole)
            if start is None:
                return ""
            whole = whole[start:]
        return self._text(whole)

    def end(self, *, stopped: bool) -> str:
        """The end of the arguments. `stopped`: they are complete."""
        whole = "".join(self._parts)
        if self._state != "text":
            return self._held(whole, stopped=stopped)
        said = self._without_closers(whole).removesuffix(self._mark)
        if not said and not self._begun:
            return "{}" if stopped else ""
        return self._piece(said) + '"}' * stopped

    def _start(self, text: str) -> int | None:
        """Where the text starts that is passed on as it arrives; None if that is not known, or if it is held to the
        end because it may be JSON."""
        pos = skip(text, 0, WHITESPACE)
        closers = ""
        while text[pos : pos + 1] in _CLOSER and len(closers) < 2:
            closers = _CLOSER[text[pos]] + closers
            pos = skip(text, pos + 1, WHITESPACE)
        named = False
        if closers:
            if (key := _INPUT_KEY.match(text, pos)) is not None:
                pos, named = key.end(), True
            if pos == len(text) or (
                (begun := _KEY_SO_FAR.match(text, pos)) and begun.end() == len(text)
            ):
                return None
        if may_become(text, pos, self._mark) and len(text) - pos < len(self._mark):
            return None
        marked = text.startswith(self._mark, pos)
        if marked:
            pos += len(self._mark)
        first = skip(text, pos, WHITESPACE)
        if first == len(text):
            return None
        is_member = bool(closers) and not marked and not named and _KEY.match(text, first)
        if named or not (is_member or text[first] in _JSON):
            self._closers = closers
            self._parts = [text[pos:]]
        if is_member or text[first] in _JSON:
            self._state = "held"
            return None
        self._state = "text"
        return pos

    def _text(self, text: str) -> str:
        """What of `text` is certainly not the end of the arguments."""
        body = self._without_closers(text)
        if body.endswith(self._mark):
            body = body.removesuffix(self._mark)
        elif len(body) == len(text):
            begun = (n for n in range(len(self._mark) - 1, 0, -1) if body.endswith(self._mark[:n]))
            body = body[: len(body) - next(begun, 0)]
        self._parts = [text[len(body) :]]
        return self._piece(body) if body else ""

    def _without_closers(self, text: str) -> str:
        """`text` without white space at its end and the brackets that close what precedes it."""
        text = text.rstrip(WHITESPACE)
        for closer in reversed(self._closers):
            text = text.removesuffix(closer).rstrip(WHITESPACE)
        return text

    def _piece(self, text: str) -> str:
        begun, self._begun = self._begun, True
        return quoted(text)[1:-1] if begun else '{"input": ' + quoted(text)[:-1]

    def _held(self, text: str, *, stopped: bool) -> str:
        """Arguments of which nothing was passed on, as a whole."""
        written = self._without_closers(text.lstrip(WHITESPACE))
        if written[:1] in _CLOSER:
            value = LiteralValue(self._syntax, self._schema)
            _, as_json = value.read("{" + written[1:], 0, final=True)
            if value.done and _has_input(as_json):
                self.repairs = 0
                return as_json
            written = written[1:].removesuffix(_CLOSER[written[0]]).strip(WHITESPACE)
        said = written.removeprefix(self._mark).removesuffix(self._mark)
        for quotes in ('"""', "'''"):
            if said.startswith(quotes) and said.endswith(quotes) and len(said) > len(quotes):
                said = said[3:-3]
        if stopped:
            return custom_arguments(said) if said else "{}"
        return custom_arguments(said)[:-2] if said else ""


def _has_input(as_json: str) -> bool:
    """Whether arguments are those of a custom tool."""
    try:
        value = json.loads(as_json)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and isinstance(value.get("input"), str)
