"""What is supported of JSON schemas, and the errors for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.sdk import InvalidRequest, Unsupported
from gateway.sdk.json_schema import ANNOTATIONS, UnresolvedReferenceError, intersection, target

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
"""Keyword values that exclude nothing that the grammar would write (it adds no properties or items of its own)."""


def refuse_unknown(schema: Mapping[str, Any], path: str) -> None:
    """Raise `Unsupported` for a keyword that affects validity and cannot be enforced."""
    for keyword, value in schema.items():
        if keyword in ENFORCED or keyword in ANNOTATIONS or keyword.startswith("x-"):
            continue
        if value in VACUOUS.get(keyword, ()) and not (keyword == "multipleOf" and value is True):
            continue
        raise Unsupported(
            f"llamacpp cannot enforce {keyword!r} of the JSON schema (at {path}).", param="schema"
        )


def resolve(root: Mapping[str, Any], reference: object) -> Any:
    """The target of a local JSON pointer (`#/$defs/name`). Raises `Unsupported` and `InvalidRequest`."""
    try:
        return target(root, reference)
    except UnresolvedReferenceError as error:
        if not error.is_local:
            raise Unsupported(
                f"Only references within the schema are followed, not {reference!r}.",
                param="schema",
            ) from None
        raise InvalidRequest(
            f"The JSON schema refers to {reference!r}, which is not in it.", param="schema"
        ) from None


def combined(one: Any, other: Any, path: str) -> Any:
    """The schema of the values valid under both. Raises `Unsupported` if two keywords cannot be combined."""
    return intersection(one, other, _refuse_conflict, path)


def _refuse_conflict(keyword: str, one: Any, other: Any, path: str) -> Any:
    if keyword == "type":
        raise InvalidRequest(
            f"No value can have both types at {path} of the JSON schema.", param="schema"
        )
    if keyword == "additionalProperties" and False in (one, other):
        raise Unsupported(
            f"llamacpp cannot enforce additionalProperties on one side of a combination (at {path}).",
            param="schema",
        )
    raise Unsupported(f"llamacpp cannot combine two {keyword!r} (at {path}).", param="schema")
