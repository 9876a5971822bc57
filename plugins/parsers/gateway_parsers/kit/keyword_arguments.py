"""Arguments that a model has written as `key=value`, in brackets or not, where its format has another syntax."""

from __future__ import annotations

import json
import re
from typing import Final

from msgspec.structs import replace

from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.argument_types import member_node
from gateway_parsers.kit.coercion import coerced, quoted
from gateway_parsers.kit.literal_syntax import PYTHON
from gateway_parsers.kit.literals import LiteralValue

_SYNTAX: Final = replace(PYTHON, sets=False)
_PAIR: Final = re.compile(
    r"""[\s,]*([\w.-]{1,64})\s{0,8}[=:]\s{0,8}"""
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,"'][^\n]*?)(?=\s*\Z|\s*[,\n]|\s+[\w.-]{1,64}\s{0,8}[=:])"""
)
MAX_LENGTH: Final = 1000
"""Characters that are read so."""


def keyword_arguments(text: str, schema: SchemaNode) -> str | None:
    """The JSON text of the arguments; None if `text` is anything else, or names a parameter that the tool does not
    have."""
    names = schema.resolved().get("properties")
    if not isinstance(names, dict) or len(text) > MAX_LENGTH:
        return None
    text = text.strip()
    if text.startswith("("):
        text = text[1:].rstrip(" ;,").removesuffix(")").strip()
    return _in_pairs(text, schema, names) or _in_python(text, schema, names)


def _in_python(text: str, schema: SchemaNode, names: dict[str, object]) -> str | None:
    value = LiteralValue(_SYNTAX, schema)
    end, as_json = value.read("{" + text + "}", 0, final=True)
    if not value.done or value.repairs or end != len(text) + 2:
        return None
    try:
        found = json.loads(as_json)
    except (ValueError, RecursionError):
        return None
    known = isinstance(found, dict) and found and found.keys() <= names.keys()
    return as_json if known else None


def _in_pairs(text: str, schema: SchemaNode, names: dict[str, object]) -> str | None:
    members: dict[str, str] = {}
    pos = 0
    while pos < len(text):
        hit = _PAIR.match(text, pos)
        if hit is None or hit[1] not in names or hit[1] in members:
            return None
        node = member_node(schema, hit[1])
        members[hit[1]] = _value(hit[2], node)
        pos = hit.end()
    if not members:
        return None
    return "{" + ", ".join(f"{quoted(key)}: {value}" for key, value in members.items()) + "}"


def _value(text: str, node: SchemaNode | None) -> str:
    if text[0] in "\"'":
        value = LiteralValue(_SYNTAX, node)
        return value.read(text, 0, final=True)[1]
    return coerced(text, node.types() if node is not None else ())
