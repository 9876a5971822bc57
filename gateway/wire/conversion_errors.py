"""Converts msgspec's validation errors to errors in OpenAI's wording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import inspect

from gateway.base.errors import InvalidRequest, ParamPath, param_path, param_text
from gateway.wire.field_errors import listed, missing, not_among, shortened, wrong_type

_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|(?P<value>\[\.\.\.\])")
_BOUND = re.compile(
    r"Expected `(?P<type>\w+)`(?P<length> of length)? (?P<sign>[<>]=?) (?P<limit>\S+)"
)
_NAMES: dict[type[inspect.Type], str] = {
    inspect.BoolType: "a boolean",
    inspect.IntType: "an integer",
    inspect.FloatType: "a decimal",
    inspect.StrType: "a string",
    inspect.ListType: "an array",
    inspect.DictType: "an object",
    inspect.StructType: "an object",
}


def explain(message: str, raw: Any, into: Any, param: str | ParamPath) -> InvalidRequest:
    """Convert msgspec's error about `raw` to OpenAI's wording, with the path below `param`.

    This is the only place that reads the paths in msgspec's messages.
    """
    found = _MESSAGE.fullmatch(message)
    assert found is not None, "the pattern fits any text"
    what = found["what"]
    kind: inspect.Type | None = _type_info(into)
    value = raw
    place = param_path(param)
    for step in _STEP.finditer(found["path"] or ""):
        if step["name"] == "type" and what.startswith(("Invalid value", "Expected `str`")):
            tags = _tags(kind)
            if tags and isinstance(value, dict):
                return _about_tag((*place, "type"), value.get("type"), tags)
        key: Any
        if step["index"] is not None:
            key = int(step["index"])
            place = (*place, key)
        else:
            key = step["name"] if step["name"] is not None else _culprit(kind, value)
            place = (*place, shortened(key))
        kind = _below(kind, key, value)
        value = value[key] if isinstance(value, list) else value.get(key)
    if absent := re.fullmatch(r"Object missing required field `(.*)`", what):
        values = _tags(kind) if absent[1] == "type" else []
        values = values or _choices(_alternatives(_below(kind, absent[1], value)))
        if len(values) == 1:
            return missing((*place, absent[1]), f"It is '{values[0]}'.")
        return missing((*place, absent[1]), f"It is one of: {listed(values)}." if values else "")
    return _about_value(what, kind, value, place)


def _about_tag(param: ParamPath, got: Any, tags: list[str]) -> InvalidRequest:
    if isinstance(got, str):
        return not_among(param, got, tags)
    return wrong_type(param, "a string", got)


def _about_value(
    what: str, kind: inspect.Type | None, value: Any, param: ParamPath
) -> InvalidRequest:
    if bound := _BOUND.fullmatch(what):
        return _out_of_bounds(bound, value, param)
    alternatives = list(_alternatives(kind))
    choices = _choices(alternatives)
    if what.startswith("Invalid enum value"):
        return not_among(param, value, choices)
    if "matching regex" in what:
        return InvalidRequest(
            f"Invalid '{param_text(param)}': string does not match pattern. Expected a string that matches the pattern "
            f"'{_pattern(alternatives)}'.",
            param=param,
            code="invalid_value",
        )
    if what.startswith("Expected"):
        names = [_NAMES[type(each)] for each in alternatives if type(each) in _NAMES]
        if choices:
            names.append(f"one of {listed(choices)}")
        return wrong_type(param, _one_of(list(dict.fromkeys(names))), value)
    return InvalidRequest(
        f"Invalid '{param_text(param)}': {what}.", param=param, code="invalid_value"
    )


def _pattern(alternatives: Iterable[inspect.Type]) -> str:
    """The pattern of a text, with the anchors of JSON Schema."""
    patterns = [each.pattern for each in alternatives if isinstance(each, inspect.StrType)]
    return next(filter(None, patterns), "").replace(r"\A", "^").replace(r"\Z", "$")


def _one_of(names: list[str]) -> str:
    """Several types as OpenAI's server lists them: `one of a string or array`."""
    if len(names) < 2:
        return names[0] if names else "something else"
    bare = [name.removeprefix("an ").removeprefix("a ") for name in names[1:]]
    return f"one of {', '.join([names[0], *bare[:-1]])} or {bare[-1]}"


def _out_of_bounds(bound: re.Match[str], value: Any, param: ParamPath) -> InvalidRequest:
    """The error for a value out of range, with OpenAI's codes: `integer_below_min_value`, `decimal_above_max_value`,
    `string_above_max_length`, `empty_string`, …"""
    kind = {"int": "integer", "float": "decimal", "str": "string"}.get(bound["type"], bound["type"])
    side = "above_max" if bound["sign"].startswith("<") else "below_min"
    limit = bound["limit"].removesuffix(".0")
    article = "an" if kind == "array" else "a"
    if bound["length"] and not value:
        return InvalidRequest(
            f"Invalid '{param_text(param)}': empty {kind}. Expected {article} {kind} with minimum length {limit}, but got an "
            f"empty {kind} instead.",
            param=param,
            code=f"empty_{kind}",
        )
    if bound["length"]:
        which, size = ("maximum", "long") if side == "above_max" else ("minimum", "short")
        problem = (
            f"{kind} too {size}. Expected {article} {kind} with {which} length {limit}, but got {article} {kind} with length "
            f"{len(value)} instead."
        )
    else:
        beyond = "above maximum" if side == "above_max" else "below minimum"
        problem = f"{kind} {beyond} value. Expected a value {bound['sign']} {limit}, but got {shortened(value)} instead."
    return InvalidRequest(
        f"Invalid '{param_text(param)}': {problem}",
        param=param,
        code=f"{kind}_{side}_{'length' if bound['length'] else 'value'}",
    )


@cache
def _type_info(into: Any) -> inspect.Type:
    return inspect.type_info(into)


def _alternatives(kind: inspect.Type | None) -> Iterator[inspect.Type]:
    match kind:
        case inspect.Metadata(type=inner):
            yield from _alternatives(inner)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _alternatives(each)
        case None:
            return
        case _:
            yield kind


def _tags(kind: inspect.Type | None) -> list[str]:
    return [
        str(each.tag)
        for each in _alternatives(kind)
        if isinstance(each, inspect.StructType) and each.tag is not None
    ]


def _choices(alternatives: Iterable[inspect.Type]) -> list[str]:
    """The values of an enumeration."""
    literals = [each for each in alternatives if isinstance(each, inspect.LiteralType)]
    return [str(value) for literal in literals for value in literal.values]


def _below(kind: inspect.Type | None, key: Any, value: Any) -> inspect.Type | None:
    """The type of the value under `key` in a `value` of type `kind`."""
    structs = [each for each in _alternatives(kind) if isinstance(each, inspect.StructType)]
    if len(structs) > 1 and isinstance(value, dict):
        structs = [each for each in structs if each.tag == value.get("type")]
    for struct in structs:
        for field in struct.fields:
            if field.encode_name == key:
                return field.type
    for each in _alternatives(kind):
        if isinstance(each, inspect.ListType) and isinstance(value, list):
            return each.item_type
        if isinstance(each, inspect.DictType) and isinstance(value, dict):
            return each.value_type
    return None


def _culprit(kind: inspect.Type | None, value: Mapping[str, Any]) -> str:
    """Find the invalid value of a mapping, which msgspec does not name. Wire types' mappings hold strings or numbers
    only."""
    for each in _alternatives(kind):
        if isinstance(each, inspect.DictType):
            wanted = float | int if isinstance(each.value_type, inspect.FloatType) else str
            for key, below in value.items():
                if not isinstance(below, wanted) or isinstance(below, bool):
                    return key
    return next(iter(value))
