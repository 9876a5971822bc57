"""The text of a custom tool's call, which models write as it is, as a JSON string, or as an object."""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.sdk import ToolDefinition
from gateway_parsers.kit.coercion import quoted, string_value
from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.markers import WHITESPACE, MarkerSet

_FIELD: Final = "input"
_NO_STOPS: Final = MarkerSet(())


def is_custom(tool: ToolDefinition | None) -> bool:
    """Whether a call of `tool` is free text."""
    return tool is not None and tool.kind == "custom"


def custom_arguments(text: str, *, decoded: bool = False) -> str:
    """The arguments of a custom tool whose input is `text`, or is in it as an object `{"input"}` or, unless the text was
    `decoded`, as a JSON string."""
    return f'{{"{_FIELD}": {quoted(_said(text, decoded=decoded))}}}'


def without_margins(text: str) -> str:
    """`text` without the white space next to the markup around it; the indentation of its first line is kept."""
    body = text.lstrip(WHITESPACE)
    margin = text[: len(text) - len(body)]
    return (margin[margin.rfind("\n") + 1 :] if "\n" in margin else "") + body.rstrip(WHITESPACE)


def _said(text: str, *, decoded: bool) -> str:
    stripped = text.strip()
    if not decoded and stripped[:1] == '"' and stripped[-1:] == '"':
        inner = string_value(stripped, strict=False) or _mended(stripped)
        if inner is None:
            return text
        text, stripped = inner, inner.strip()
    if stripped[:1] != "{":
        return text
    try:
        value: Any = json.loads(stripped, strict=False)
    except (ValueError, RecursionError):
        return text
    found = value.get(_FIELD) if isinstance(value, dict) else None
    said = string_value(quoted(found)) if isinstance(found, str) else None
    return text if said is None else said


def _mended(text: str) -> str | None:
    """The string whose JSON text is `text`, if its quotation marks are mended; None if it is none."""
    value = JsonValue(_NO_STOPS, member=True)
    end, as_json = value.read(text + "}", 0, final=True)
    return string_value(as_json) if value.done and end == len(text) else None
