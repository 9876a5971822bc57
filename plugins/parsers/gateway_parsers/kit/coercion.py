"""Converts plain text to a JSON value according to its schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from typing import Any, Final

from gateway.sdk.json_schema import JsonType
from gateway.sdk.wire import is_too_deep

NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
INTEGER: Final = re.compile(r"[+-]?[0-9]+")
DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMBER_CHARACTERS = "+-.0123456789eE"
_LITERALS: dict[JsonType, tuple[str, ...]] = {
    "boolean": ("true", "false"), "null": ("null", "none"),
}  # fmt: skip
_WORDS = {"True": "true", "False": "false", "None": "null"}
_EMPTY: tuple[tuple[JsonType, str], ...] = (("null", "null"), ("array", "[]"), ("object", "{}"))
MAX_DIGITS = 400
"""Longer numbers become strings, because float and decimal conversion reject them."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def quoted(text: str) -> str:
    """`text` as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def coerced(text: str, types: Collection[JsonType]) -> str:
    """The JSON text of the value that `text` represents under a schema that allows `types`; empty if unspecified.

    Returns a string only if one is allowed, or if `text` has no other reading.
    """
    stripped = text.strip()
    if not stripped and types and "string" not in types:
        return next((empty for kind, empty in _EMPTY if kind in types), quoted(text))
    for kind in ("null", "integer", "number", "boolean", "object", "array"):
        if kind in types:
            found = _as(kind, stripped, types)
            if found is not None:
                return found
    if "string" in types:
        return quoted(text)
    if types and stripped[:1] == '"':
        inner = string_value(stripped)
        if inner is not None and inner[:1] != '"':
            as_json = coerced(inner, types)
            if not as_json.startswith('"'):
                return as_json
    found = _json(stripped)
    if found is None:
        found = _WORDS.get(stripped)
    return found if found is not None else quoted(text)


def _as(kind: JsonType, text: str, types: Collection[JsonType]) -> str | None:
    """`text` as a value of one of `types`; None if impossible. If strings are not allowed, near-JSON is also
    accepted."""
    lenient = "string" not in types
    match kind:
        case "null":
            return "null" if text == "null" or (lenient and text == "None") else None
        case "boolean":
            lowered = text.lower()
            if lowered in ("true", "false"):
                return lowered
            return {"1": "true", "0": "false"}.get(text) if lenient else None
        case "integer":
            return _integer(text, lenient=lenient and "number" not in types)
        case "number":
            return _number(text, lenient=lenient)
        case "object" | "array":
            opening = "{" if kind == "object" else "["
            return _json(text) if text.startswith(opening) else None
        case _:
            return None


def _integer(text: str, *, lenient: bool) -> str | None:
    if len(text) > MAX_DIGITS:
        return None
    if NUMBER.fullmatch(text):
        if not set(text) & set(".eE"):
            return text
        if not lenient:
            return None
        value = float(text)
        return str(int(value)) if math.isfinite(value) and value.is_integer() else None
    if lenient and INTEGER.fullmatch(text):
        return str(int(text))
    return None


def _number(text: str, *, lenient: bool) -> str | None:
    if len(text) > MAX_DIGITS:
        return None
    if NUMBER.fullmatch(text):
        return text if math.isfinite(float(text)) else None
    if lenient and DECIMAL.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return str(int(text)) if INTEGER.fullmatch(text) else repr(value)
    return None


def _json(text: str) -> str | None:
    """`text` if it is one JSON value in strict syntax, else None."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return text if _finite(value) and not is_too_deep(value) else None


def string_value(text: str, *, strict: bool = True) -> str | None:
    """The string whose JSON text is `text`, with U+FFFD for halves of surrogate pairs; None if it is none. Control
    characters may be in it unless it is `strict`."""
    try:
        value = json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return None
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(value: Any) -> bool:
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, float) and not math.isfinite(each):
            return False
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict):
            pending += each.values()
    return True


class MixedText:
    """Tracks whether streamed text can still be something other than a string. Examines each character once."""

    __slots__ = ("_gap", "_head", "_numeric", "_types")

    def __init__(self, types: Collection[JsonType]) -> None:
        self._types = types
        self._head = ""
        self._gap = False
        """Whether white space follows the text so far; no number goes on after it."""
        self._numeric = "integer" in types or "number" in types

    def may_be_other(self, piece: str) -> bool:
        """Whether that still holds after `piece`."""
        begun = bool(self._head)
        if len(self._head) < 8:
            self._head = (self._head + piece if self._head else piece.lstrip())[:8]
        head = self._head
        if not head:
            return True
        if (head[0] == "{" and "object" in self._types) or (
            head[0] == "[" and "array" in self._types
        ):
            return True
        if self._numeric:
            body = piece.strip()
            self._gap = self._gap or (begun and piece[:1].isspace())
            self._numeric = not body or not (self._gap or body.strip(_NUMBER_CHARACTERS))
            self._gap = self._gap or piece[-1:].isspace()
        return self._numeric or any(
            literal.startswith(word)
            or (word.startswith(literal) and not word[len(literal) :].strip())
            for kind, literals in _LITERALS.items()
            if kind in self._types
            for literal in literals
            if (word := head.lower().rstrip())
        )
