"""JSON schemas before they are written as grammar: references, combinations, and what is understood at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from gateway.errors import InvalidRequest, Unsupported

DOCUMENTATION = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "externalDocs",
        "xml",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "$anchor",
        "$vocabulary",
        "strict",
    ]
)
"""Keywords that say nothing about which values are valid."""
ENFORCED = frozenset(
    [
        "$ref",
        "type",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "properties",
        "required",
        "additionalProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "nullable",
    ]
)
VACUOUS: Mapping[str, Sequence[Any]] = {
    "uniqueItems": (False,),
    "unevaluatedProperties": (True, False),
    "unevaluatedItems": (True, False),
    "multipleOf": (1,),
    "minContains": (0,),
    "patternProperties": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
}
"""Values with which a keyword forbids nothing that the grammar would write (it adds no property and no item of its own)."""


def refuse_unknown(schema: Mapping[str, Any], path: str) -> None:
    """Raise `Unsupported` for a keyword that would be needed and is not enforced."""
    for keyword, value in schema.items():
        if keyword in ENFORCED or keyword in DOCUMENTATION or keyword.startswith("x-"):
            continue
        if value in VACUOUS.get(keyword, ()) and not (keyword == "multipleOf" and value is True):
            continue
        raise Unsupported(
            f"llamacpp cannot enforce {keyword!r} of the JSON schema (at {path}).", param="schema"
        )


def resolve(root: Mapping[str, Any], reference: object) -> Any:
    """What a local JSON pointer (`#/$defs/name`) refers to."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise Unsupported(
            f"Only references within the schema are followed, not {reference!r}.", param="schema"
        )
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise InvalidRequest(
                f"The JSON schema refers to {reference!r}, which is not in it.", param="schema"
            )
    return found


def merged(one: Mapping[str, Any], other: object, path: str) -> dict[str, Any]:
    """The schema of what is valid under both. Raises `Unsupported` where two keywords would have to be combined."""
    if other is True:
        return dict(one)
    if not isinstance(other, Mapping):
        raise Unsupported(f"llamacpp cannot enforce the combination at {path}.", param="schema")
    result = dict(one)
    for keyword, value in other.items():
        if keyword not in result or result[keyword] == value or keyword in DOCUMENTATION:
            result[keyword] = value
        elif keyword == "properties":
            shared = dict(result[keyword])
            for name, schema in value.items():
                shared[name] = (
                    merged(shared[name], schema, f"{path}.{name}") if name in shared else schema
                )
            result[keyword] = shared
        elif keyword == "required":
            result[keyword] = list(dict.fromkeys([*result[keyword], *value]))
        elif keyword == "type":
            result[keyword] = _shared_types(result[keyword], value, path)
        elif keyword in ("minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum"):
            result[keyword] = max(result[keyword], value)
        elif keyword in ("maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum"):
            result[keyword] = min(result[keyword], value)
        elif keyword == "additionalProperties" and False in (value, result[keyword]):
            raise Unsupported(
                f"llamacpp cannot enforce additionalProperties on one side of a combination (at {path}).",
                param="schema",
            )
        else:
            raise Unsupported(
                f"llamacpp cannot combine two {keyword!r} (at {path}).", param="schema"
            )
    return result


def _shared_types(one: Any, other: Any, path: str) -> list[str]:
    first, second = types_of({"type": one}), types_of({"type": other})
    shared = [
        name for name in first if name in second or (name == "integer" and "number" in second)
    ]
    shared += [
        name for name in second if name == "integer" and "number" in first and name not in shared
    ]
    if not shared:
        raise InvalidRequest(
            f"No value can have both types at {path} of the JSON schema.", param="schema"
        )
    return shared


def types_of(schema: Mapping[str, Any]) -> list[str]:
    """The types that `schema` names; empty for none."""
    kind = schema.get("type")
    names = [kind] if isinstance(kind, str) else list(kind or ())
    if schema.get("nullable") is True and names and "null" not in names:
        names.append("null")
    return names


def disjoint(one: Any, other: Any, root: Mapping[str, Any]) -> bool:
    """Whether it is plain that no value is valid under both: by type, by listed values, or by a required property."""
    one, other = _dereferenced(one, root), _dereferenced(other, root)
    if one is None or other is None:
        return False
    values, others = _listed(one), _listed(other)
    if values is not None and others is not None:
        return not values & others
    types, more = set(types_of(one)), set(types_of(other))
    if (
        types
        and more
        and not types & more
        and not ("number" in types | more and "integer" in types | more)
    ):
        return True
    shared = set(one.get("required", ())) & set(other.get("required", ()))
    properties, others_properties = one.get("properties", {}), other.get("properties", {})
    return types == more == {"object"} and any(
        disjoint(properties[name], others_properties[name], root)
        for name in shared
        if name in properties and name in others_properties
    )


def _dereferenced(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for _ in range(16):
        if not isinstance(schema, Mapping):
            return None
        if "$ref" not in schema:
            return schema
        schema = resolve(root, schema["$ref"])
    return None


def _listed(schema: Mapping[str, Any]) -> set[bytes] | None:
    if "const" in schema:
        return {msgspec.json.encode(schema["const"])}
    if "enum" in schema:
        return {msgspec.json.encode(value) for value in schema["enum"]}
    return None
