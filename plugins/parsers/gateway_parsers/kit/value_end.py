"""Where a value ends that is plain text between tags, and may hold such tags itself."""

from __future__ import annotations

import re
from typing import Final

from gateway_parsers.kit.markers import WHITESPACE, Position
from gateway_parsers.kit.reader import skip
from gateway_parsers.kit.schema import SchemaNode
from gateway_parsers.kit.tags import TagShape, attribute_of

_ANYWHERE: Final = Position()
_MAX_QUOTED: Final = 400
"""Characters behind an end within which another one is looked for, which would make the first a part of the value."""
_MAX_KEY: Final = 128
_KEY_END: Final = re.compile(r"[>\n]")


def is_end(shape: TagShape, text: str, after: int, *, nested: int, final: bool) -> bool | None:
    """Whether the value's end marker before `after` is one. None: more text must come.

    It is, where markup follows that can follow a value. Where text follows, or the value has opened `nested` such values
    of its own, it is a part of the value if another end comes before anything new begins.
    """
    start = skip(text, after, WHITESPACE)
    if start == len(text):
        return True if final or start - after > _MAX_QUOTED else None
    marker = shape.behind_value.at(text, start)
    if marker is None and shape.behind_value.begins_at(text, start):
        return True if final else None
    if marker is not None:
        match marker.action:
            case "close":
                return not nested
            case "stop" if nested:
                pass
            case _:
                return True
    hit = shape.next_value.find(text, start, _ANYWHERE, final=True)
    if hit is not None and hit[0] - after <= _MAX_QUOTED:
        return hit[1].action != "close"
    return True if final or len(text) - after > _MAX_QUOTED + shape.next_value.longest else None


def is_key(
    shape: TagShape, text: str, after: int, *, before: str, schema: SchemaNode, final: bool
) -> bool | None:
    """Whether the beginning of a parameter that stands in a value, up to `after`, is one: then the value's own end is missing.

    `before` is the character in front of it. It is none where the tool has no such parameter, or where the family begins
    parameters in a line of their own and this one stands in the midst of one. None: more text must come.
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
    said = text[after : hit.start()]
    name = (
        attribute_of(f"{shape.key_attribute}={said}", shape.key_attribute)
        if shape.key_attribute
        else said
    )
    return name.strip().strip("\"'") in properties
