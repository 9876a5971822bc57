"""Generating small instances of a JSON schema or a constraint.

For engines without a model, which must produce valid output if a tool or a schema is forced. Best effort for schemas
that would need a solver (`not`, `dependentSchemas`, patterns with look-arounds).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gateway.sdk import Unsupported
from gateway.sdk.constraints import (
    Const,
    Constraint,
    FreeText,
    Grammar,
    JsonObject,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.sdk.json_schema import (
    UnresolvedReferenceError,
    has_type,
    implied_types,
    intersection,
    listed_types,
    target,
)
from gateway_scripted.patterns import shortest_match

_OF_FORMAT = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "duration": "PT0S",
    "email": "a@example.com",
    "hostname": "example.com",
    "ipv4": "0.0.0.0",  # noqa: S104 (a value, not an address to listen on)
    "ipv6": "::",
    "time": "00:00:00Z",
    "uri": "a:",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

_MAX_SCHEMAS = 100_000
"""Maximum number of schemas that one instance is built from."""
_MAX_TEXT = 1_000_000
"""Maximum length of the strings of one instance together, and of a text."""
_MAX_DISTINCT = 200
"""Maximum number of items of an array that are to be distinct: making them so takes the cube of the number."""


class NoInstanceError(ValueError):
    """The schema has no finite instance, or none that can be found here."""


def minimal_instance(schema: Mapping[str, Any] | bool) -> Any:
    """A small value that is valid under `schema` (JSON Schema 2020-12, local references).

    Deterministic. Raises `NoInstanceError` if the schema is `false`, infinitely recursive, or invalid.
    """
    try:
        return _Builder(schema).build(schema, ())
    except (TypeError, AttributeError, KeyError) as error:
        # A keyword's value has the wrong type.
        raise NoInstanceError("it is not a JSON schema") from error


def minimal_object(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """A small arguments object under `schema`; empty if there is no schema, or it does not require an object."""
    value = minimal_instance(schema) if schema else {}
    return value if isinstance(value, dict) else {}


def minimal_object_text(constraint: JsonSchema) -> str:
    """The JSON text of a small arguments object under a schema."""
    return json.dumps(minimal_object(constraint.schema), ensure_ascii=False)


def minimal_text(constraint: Constraint) -> str:
    """A short text that implements `constraint`. Raises `Unsupported` for grammars, which are not parsed here."""
    match constraint:
        case Const(text):
            return text
        case JsonSchema(schema):
            return json.dumps(minimal_instance(schema), ensure_ascii=False)
        case JsonObject():
            return "{}"
        case Regex(pattern):
            found = shortest_match(pattern)
            if found is None:
                raise Unsupported(f"The scripted engine finds no text for the pattern {pattern!r}.")
            return found
        case FreeText(until):
            return until or ""
        case Sequence(parts):
            return "".join(map(minimal_text, parts))
        case OneOf(options):
            return minimal_text(options[0])
        case Repeat(body, least):
            text = minimal_text(body)
            if len(text) * least > _MAX_TEXT:
                raise Unsupported("The scripted engine writes no text that is so long.")
            return text * least
        case Triggered():
            return ""
        case Grammar(syntax):
            raise Unsupported(f"The scripted engine does not read {syntax} grammars.")


class _Builder:
    """Builds instances under one root, which local references refer to."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = _MAX_SCHEMAS
        self._room = _MAX_TEXT

    def build(self, schema: Any, inside: tuple[str, ...]) -> Any:
        """`inside`: the references being resolved. Reaching one of them again means infinite recursion."""
        self._left -= 1
        if self._left < 0:
            raise NoInstanceError("it is too large")
        if schema is True:
            return None
        if not isinstance(schema, Mapping):
            raise NoInstanceError(f"nothing is valid under {schema!r}")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in inside:
                raise NoInstanceError(f"{reference} needs itself for ever")
            target = self._resolve(reference)
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self.build(_merged(target, rest), (*inside, reference))
        if "allOf" in schema:
            whole: Any = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                whole = _merged(whole, self._followed(part, inside))
            return self.build(whole, inside)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._fitting(schema)
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return self._first_of(schema, key, inside)
        return self._of_type(schema, inside)

    def _fitting(self, schema: Mapping[str, Any]) -> Any:
        """The first member of an enum that has the right type, if a type is given as well."""
        kinds = listed_types(schema)
        fitting = [value for value in schema["enum"] if not kinds or has_type(value, kinds)]
        return (fitting or schema["enum"])[0]

    def _first_of(self, schema: Mapping[str, Any], key: str, inside: tuple[str, ...]) -> Any:
        rest = {name: value for name, value in schema.items() if name != key}
        for option in schema[key]:
            try:
                return self.build(_merged(rest, self._followed(option, inside)), inside)
            except NoInstanceError:
                continue
        raise NoInstanceError(f"no option of {key} has an instance")

    def _followed(self, schema: Any, inside: tuple[str, ...]) -> Any:
        """A schema with its own reference resolved, unless that reference is already being resolved."""
        seen = set(inside)
        while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            if schema["$ref"] in seen:
                return schema
            seen.add(schema["$ref"])
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            if not rest:
                # Keep it: `build` must see the reference to detect recursion.
                return schema
            schema = _merged(self._resolve(schema["$ref"]), rest)
        return schema

    def _resolve(self, reference: str) -> Any:
        try:
            return target(self._root, reference)
        except UnresolvedReferenceError as error:
            raise NoInstanceError(str(error)) from None

    def _of_type(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
        kinds = listed_types(schema) or implied_types(schema)[:1] or ["null"]
        for number, kind in enumerate(kinds):
            try:
                match kind:
                    case "object":
                        return self._object(schema, inside)
                    case "array":
                        return self._array(schema, inside)
                    case "string":
                        return self._string(schema)
                    case "integer" | "number":
                        return _number(schema, whole=kind == "integer")
                    case "boolean":
                        return False
                    case _:
                        return None
            except NoInstanceError:
                if number == len(kinds) - 1:
                    raise
        raise NoInstanceError("no type is allowed")

    def _string(self, schema: Mapping[str, Any]) -> str:
        least = int(schema.get("minLength", 0))
        self._room -= max(0, least)
        if self._room < 0:
            raise NoInstanceError("it is too long")
        most = schema.get("maxLength")
        if "pattern" in schema:
            found = shortest_match(schema["pattern"], at_least=least, search=True)
            if found is None or (most is not None and len(found) > most):
                raise NoInstanceError(f"no text is found for the pattern {schema['pattern']!r}")
            return found
        value = _OF_FORMAT.get(str(schema.get("format")), "")
        return value + "a" * max(0, least - len(value))

    def _object(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        others = schema.get("additionalProperties", True)
        names = list(dict.fromkeys(schema.get("required") or ()))
        least = schema.get("minProperties", 0)
        names += [name for name in properties if name not in names][: max(0, least - len(names))]
        made = {name: self.build(properties.get(name, others), inside) for name in names}
        for number in range(least - len(made)):
            made[f"p{number}"] = self.build(others, inside)
        return made

    def _array(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> list[Any]:
        fixed = schema.get("prefixItems") or []
        others = schema.get("items", True)
        if isinstance(others, list):  # tuples of drafts before 2020-12
            fixed, others = others, schema.get("additionalItems", True)
        least = schema.get("minItems", 0)
        if "contains" in schema:
            least = max(least, schema.get("minContains", 1))
            others = _merged(others, schema["contains"])
        made = [self.build(fixed[i] if i < len(fixed) else others, inside) for i in range(least)]
        if not schema.get("uniqueItems"):
            return made
        if len(made) > _MAX_DISTINCT:
            raise NoInstanceError("it is too long")
        return _made_distinct(made)


def _merged(one: Any, other: Any) -> Any:
    return intersection(one, other, _chosen)


def _chosen(keyword: str, one: Any, other: Any, path: str) -> Any:
    """The value of a keyword whose values cannot be combined: the later one may still do."""
    if keyword == "type":
        raise NoInstanceError("no type is allowed")
    return other


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    """The number closest to 0 in the range."""
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    step = schema.get("multipleOf", 1 if whole else 0)
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")

    def fits(value: float) -> bool:
        return (
            low <= value <= high
            and (above is None or value > above)
            and (below is None or value < below)
        )

    floor = max(low, -math.inf if above is None else above)
    ceiling = min(high, math.inf if below is None else below)
    candidates: list[int | float] = [0]
    if step:
        for edge, direction in ((floor, 1), (ceiling, -1)):
            if math.isfinite(edge):
                first = math.ceil(edge / step) if direction == 1 else math.floor(edge / step)
                candidates += [first * step, (first + direction) * step]
    else:
        for edge, direction in ((floor, 1), (ceiling, -1)):
            if math.isfinite(edge):
                candidates += [edge, edge + direction]
        if math.isfinite(floor) and math.isfinite(ceiling):
            candidates.append((floor + ceiling) / 2)
    for value in candidates:
        if fits(value):
            return int(value) if whole else value
    raise NoInstanceError("no number lies in the range")


def _made_distinct(values: list[Any]) -> list[Any]:
    """The list with repeated numbers incremented and repeated texts extended, so that all values differ."""
    seen: list[Any] = []
    for value in values:
        while value in seen:
            match value:
                case bool():
                    value = not value
                    if value in seen:
                        raise NoInstanceError("there are only two booleans")
                case int() | float():
                    value += 1
                case str():
                    value += "a"
                case _:
                    raise NoInstanceError("no further value is found that is unlike the others")
        seen.append(value)
    return seen
