"""Converts JSON schemas to GBNF.

Generated output is valid under the schema, but not all valid output can be generated. Properties come in the schema's
order, objects have only the listed properties (unless none are listed), white space is bounded, and unknown `format`
values are annotations, as in the specification. Raises `Unsupported` for a keyword that would have to be ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.sdk import InvalidRequest, Unsupported
from gateway.sdk.json_schema import (
    ANNOTATIONS,
    KEYWORDS_OF_TYPE,
    disjoint,
    has_type,
    listed_types,
)
from gateway_llamacpp.gbnf.characters import literal
from gateway_llamacpp.gbnf.json_text import Bounds, JsonRules, in_string
from gateway_llamacpp.gbnf.number_ranges import bounds_of, integers, numbers
from gateway_llamacpp.gbnf.regex import regex_to_gbnf
from gateway_llamacpp.gbnf.rules import EMPTY, Rules, one_of, repeat, sequence, words
from gateway_llamacpp.gbnf.schema_support import ENFORCED, combined, refuse_unknown, resolve

_DATE = r"\d{4}-(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|\d{4}-(0[469]|11)-(0[1-9]|[12]\d|30)|\d{4}-02-(0[1-9]|1\d|2[0-8])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_LABEL = r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"({_DATE})T({_TIME})",
    "duration": r"P(\d{1,4}W|\d{1,4}D(T\d{1,2}H(\d{1,2}M(\d{1,2}S)?)?)?|T\d{1,4}(H(\d{1,2}M(\d{1,2}S)?)?|M(\d{1,2}S)?|S))",
    "email": rf"[A-Za-z0-9_+-]{{1,32}}(\.[A-Za-z0-9_+-]{{1,32}}){{0,2}}@{_LABEL}(\.{_LABEL}){{1,3}}",
    "hostname": rf"{_LABEL}(\.{_LABEL}){{0,4}}",
    "ipv4": rf"{_BYTE}(\.{_BYTE}){{3}}",
    "ipv6": r"([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "uri": rf"https?://{_LABEL}(\.{_LABEL}){{0,3}}(:\d{{2,4}})?(/[A-Za-z0-9._~-]{{0,40}}){{0,8}}(\?[A-Za-z0-9._~=&-]{{1,80}})?",
}
"""Supported formats; each pattern covers a subset of the format (no leap days, no compressed IPv6)."""


class SchemaWriter:
    """Converts one schema to expressions of a grammar."""

    def __init__(
        self, rules: Rules, schema: Mapping[str, Any], bounds: Bounds | None = None
    ) -> None:
        """`bounds` hold where the schema has none."""
        self._rules = rules
        self._root = schema
        self._json = JsonRules(rules, bounds)
        self._bounds = bounds
        self._references: dict[str, str] = {}

    def write(self) -> str:
        """The expression of a value that is valid under the schema."""
        return self._value(self._root, "#")

    def _value(self, schema: Any, path: str) -> str:
        if schema is True:
            return self._json.value()
        if not isinstance(schema, Mapping):
            raise InvalidRequest(
                f"The JSON schema has no schema at {path}, or one that no value satisfies.",
                param="schema",
            )
        refuse_unknown(schema, path)
        if "$ref" in schema:
            return self._reference(schema, path)
        if "allOf" in schema:
            return self._value(self._all_of(schema, path), path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._any_of(schema, keyword, path)
        if "const" in schema:
            return self._listed([schema["const"]], schema, path)
        if "enum" in schema:
            return self._listed(schema["enum"], schema, path)
        types = listed_types(schema) or self._implied(schema)
        if not types:
            return self._json.value()
        return one_of(self._typed(kind, schema, path) for kind in types)

    def _implied(self, schema: Mapping[str, Any]) -> list[str]:
        return [
            kind
            for kind, keywords in KEYWORDS_OF_TYPE.items()
            if any(word in schema and word in ENFORCED for word in keywords)
        ]

    def _typed(self, kind: str, schema: Mapping[str, Any], path: str) -> str:
        match kind:
            case "object":
                return self._object(schema, path)
            case "array":
                return self._array(schema, path)
            case "string":
                return self._string(schema, path)
            case "integer" | "number":
                return self._number(kind, schema)
            case "boolean":
                return '("true" | "false")'
            case "null":
                return '"null"'
            case _:
                raise InvalidRequest(
                    f"The JSON schema has the unknown type {kind!r} (at {path}).", param="schema"
                )

    def _reference(self, schema: Mapping[str, Any], path: str) -> str:
        target = schema["$ref"]
        beside = {
            word: value
            for word, value in schema.items()
            if word != "$ref" and word not in ANNOTATIONS
        }
        if beside:
            return self._value(combined(resolve(self._root, target), beside, path), path)
        if target not in self._references:
            name = self._rules.reserve("ref")
            self._references[target] = name
            self._rules.define(name, self._value(resolve(self._root, target), target))
        return self._references[target]

    def _all_of(self, schema: Mapping[str, Any], path: str) -> Any:
        result: Any = {word: value for word, value in schema.items() if word != "allOf"}
        for part in schema["allOf"]:
            seen = 0
            while isinstance(part, Mapping) and "$ref" in part:
                seen += 1
                if seen > 16:
                    raise Unsupported(
                        f"llamacpp cannot follow the references at {path}.", param="schema"
                    )
                beside = {word: value for word, value in part.items() if word != "$ref"}
                part = combined(resolve(self._root, part["$ref"]), beside, path)
            result = combined(result, part, path)
        return result

    def _any_of(self, schema: Mapping[str, Any], keyword: str, path: str) -> str:
        options = schema[keyword]
        if not isinstance(options, Sequence) or not options:
            raise InvalidRequest(f"{keyword} must list schemas (at {path}).", param="schema")
        if keyword == "oneOf" and not all(
            disjoint(one, other, self._root)
            for at, one in enumerate(options)
            for other in options[:at]
        ):
            raise Unsupported(
                f"llamacpp can enforce oneOf only of schemas that are told apart by their types or by a property's "
                f"constant (at {path}); use anyOf.",
                param="schema",
            )
        beside = {
            word: value
            for word, value in schema.items()
            if word != keyword and word not in ANNOTATIONS
        }
        return one_of(
            self._value({"allOf": [option, beside]} if beside else option, f"{path}/{keyword}/{at}")
            for at, option in enumerate(options)
        )

    def _listed(self, values: Any, schema: Mapping[str, Any], path: str) -> str:
        types = listed_types(schema)
        fitting = [value for value in values if not types or has_type(value, types)]
        if not fitting:
            raise InvalidRequest(
                f"No enum value has the required type (at {path}).", param="schema"
            )
        return words(self._rules, [msgspec.json.encode(value).decode() for value in fitting])

    def _object(self, schema: Mapping[str, Any], path: str) -> str:
        properties: dict[str, Any] = dict(schema.get("properties", {}))
        extra = schema.get("additionalProperties", True)
        required = dict.fromkeys(schema.get("required", ()))
        for name in required:
            if name not in properties:
                properties[name] = extra
        low, high = schema.get("minProperties", 0), schema.get("maxProperties")
        if not properties:
            return self._map(schema, extra, low, high, path)
        if (
            low > len(required)
            or (high is not None and high < len(properties))
            or "propertyNames" in schema
        ):
            raise Unsupported(
                f"llamacpp cannot count or check the names of an object's optional properties (at {path}).",
                param="schema",
            )
        ws = self._json.space()
        pairs = [
            (
                f'{literal(msgspec.json.encode(name).decode())} ":" {ws} {self._value(value, f"{path}/{name}")}',
                name in required,
            )
            for name, value in properties.items()
        ]
        return self._rules.add("object", f'"{{" {ws} {self._pairs(pairs)} {ws} "}}"')

    def _pairs(self, pairs: list[tuple[str, bool]]) -> str:
        """The pairs in order, optional ones omitted at will, with correct commas."""
        ws = self._json.space()
        rest = EMPTY
        options: list[str] = []
        for pair, needed in reversed(pairs):
            begins = sequence([pair, rest])
            options = [begins] if needed else [begins, *options]
            more = sequence([f'"," {ws} {pair}', rest])
            if needed:
                rest = self._rules.add("more", more)
            else:
                rest = self._rules.add("more", f"{more} | {rest}")
        if not any(needed for _, needed in pairs):
            options.append(EMPTY)
        return one_of(options)

    def _map(
        self, schema: Mapping[str, Any], extra: Any, low: int, high: int | None, path: str
    ) -> str:
        if extra is False:
            if low:
                raise InvalidRequest(
                    f"The object at {path} requires properties but allows none.", param="schema"
                )
            high = 0
        if low > 1:
            raise Unsupported(
                f"llamacpp cannot enforce minProperties above 1 (at {path}).", param="schema"
            )
        names = schema.get("propertyNames", True)
        key = self._json.string() if names is True else self._string(names, f"{path}/propertyNames")
        value = (
            self._json.value()
            if extra in (True, False)
            else self._value(extra, f"{path}/additionalProperties")
        )
        return self._rules.add("map", self._json.pairs(key, value, low, high))

    def _array(self, schema: Mapping[str, Any], path: str) -> str:
        ws = self._json.space()
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        first = schema.get("prefixItems", ())
        rest = schema.get("items", True)
        if first and rest is False:
            high = len(first) if high is None else min(high, len(first))
        if high is None and self._bounds is not None:
            high = max(low, len(first), self._bounds.items)
        if high is not None and high < low:
            raise InvalidRequest(
                f"The array at {path} has minItems above maxItems.", param="schema"
            )
        given = [self._value(item, f"{path}/prefixItems/{at}") for at, item in enumerate(first)][
            :high
        ]
        body = EMPTY
        if high is None or high > len(given):
            item = self._rules.add("item", self._value(rest, f"{path}/items"))
            most = None if high is None else high - len(given)
            least = max(0, low - len(given))
            if given:
                body = repeat(f'"," {ws} {item}', least, most, what="number of items")
            else:
                more = repeat(
                    f'"," {ws} {item}',
                    max(0, least - 1),
                    None if most is None else most - 1,
                    what="number of items",
                )
                body = sequence([item, more]) if least else f"({sequence([item, more])})?"
        for at in range(len(given) - 1, -1, -1):
            body = sequence([f'"," {ws}' if at else EMPTY, given[at], body])
            if at >= low:
                body = f"({body})?"
        return self._rules.add("array", sequence(['"["', ws, body, ws, '"]"']))

    def _string(self, schema: Mapping[str, Any], path: str) -> str:
        refuse_unknown(schema, path)
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        pattern = schema.get("pattern")
        known = _FORMATS.get(schema.get("format", ""))
        if "enum" in schema or "const" in schema:
            return self._value({**schema, "type": "string"}, path)
        if (pattern is not None) + (known is not None) + (bool(low) or high is not None) > 1:
            raise Unsupported(
                f"llamacpp enforces only one of pattern, format and length of a string (at {path}).",
                param="schema",
            )
        most = None if self._bounds is None else self._bounds.characters
        if pattern is not None:
            inside = regex_to_gbnf(pattern, emit=in_string, whole=False, most=most)
        elif known is not None:
            inside = regex_to_gbnf(known, emit=in_string)
        elif low or high is not None:
            if high is None and most is not None:
                high = max(low, most)
            inside = repeat(self._json.char(), low, high, what="length of a string")
        else:
            return self._json.string()
        return self._rules.add("text", sequence(['"\\""', inside, '"\\""']))

    def _number(self, kind: str, schema: Mapping[str, Any]) -> str:
        bounds = bounds_of(schema)
        if bounds.low is None and bounds.high is None:
            return self._json.integer() if kind == "integer" else self._json.number()
        return self._rules.add(kind, integers(bounds) if kind == "integer" else numbers(bounds))
