"""Finds the end of a plain-text value between tags, which may contain such tags itself."""

from __future__ import annotations

import re
from typing import Final

from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.reader import skip
from gateway_parsers.kit.tags import TagShape, attribute_of

_MAX_QUOTED: Final = 400
"""Characters after an end within which another end is searched, which would make the first one part of the value."""
_MAX_KEY: Final = 128
_KEY_END: Final = re.compile(r"[>\n]")
_MISSPELT: Final = re.compile(r"(?:\w{0,32}>)?[ \t\r\n]{0,64}")
"""The rest of a misspelt end, as in `</parameter1>` or a bare `</parameter`. A word without `>` is text."""
_MISSPELT_SO_FAR: Final = re.compile(r"\w{0,32}")


def is_end(shape: TagShape, text: str, after: int, *, nested: int, final: bool) -> bool | None:
    """Whether the end marker before `after` really ends the value; None if more text is needed.

    It does if markup that can follow a value comes next. If text follows, or the value has opened `nested` such values
    itself, it is part of the value if another end comes before anything new starts.
    """
    start = skip(text, after, WHITESPACE)
    if start - after > _MAX_QUOTED:
        return True
    if start == len(text):
        return True if final else None
    marker = shape.after_value.at(text, start)
    if marker is None and shape.after_value.begins_at(text, start):
        return True if final else None
    if marker is not None:
        match marker.action:
            case "close":
                return not nested
            case "stop" if nested:
                pass
            case _:
                return True
    hit = shape.next_value.near(text, start, _MAX_QUOTED - (start - after))
    if hit is not None:
        return hit[1].action != "close"
    return True if final or len(text) - after > _MAX_QUOTED + shape.next_value.longest else None


def is_key(
    shape: TagShape, text: str, after: int, *, before: str, schema: SchemaNode, final: bool
) -> bool | None:
    """Whether the start of a parameter inside a value, up to `after`, is real, so that the value's own end is missing.

    `before` is the preceding character. It is not real if the tool has no such parameter, or if the family starts
    parameters on new lines and this one is within a line. None if more text is needed.
    """
    if shape.trim == "newline" and before not in ("\n", ""):
        return False
    properties = schema.resolved().get("properties")
    if not isinstance(properties, dict) or not properties:
        return True
    if shape.key_end != ">":
        return True
    hit = _KEY_END.search(text, after, after + _MAX_KEY)
    if hit is None:
        return False if final or len(text) - after >= _MAX_KEY else None
    key = text[after : hit.start()]
    name = (
        attribute_of(f"{shape.key_attribute}={key}", shape.key_attribute)
        if shape.key_attribute
        else key
    )
    return name.strip().strip("\"'") in properties


def after_misspelt_end(text: str, pos: int) -> int:
    """The position of what follows a misspelt end of a value, whose beginning is before `pos`: what may be the rest of
    it, and white space, is passed over. The end of the text if more is needed."""
    begun = _MISSPELT_SO_FAR.match(text, pos)
    if begun is not None and begun.end() == len(text):
        return len(text)
    hit = _MISSPELT.match(text, pos)
    return hit.end() if hit is not None else pos
