"""Conversion of plain JSON to Structs, with errors that name the parameter as OpenAI does.

A null counts as missing wherever a Struct describes the object: SDKs dump their models with nulls for missing fields
and send them back. In free-form JSON (schemas, arguments) nulls are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import inspect

from gateway.errors import InvalidRequest, ParamPath, param_path, param_text
from gateway.wire.common import Tagged, type_of

T = TypeVar("T")

MAX_DEPTH = 128
"""Maximum nesting depth of a body: far more than schemas need, and far less than what overflows a stack."""
MAX_VALUES = 1_000_000
"""Maximum number of commas in a body, an upper bound for its values. Decoding blocks other requests."""
MAX_ITEMS = 20_000
"""Maximum number of items, messages or tools in one request."""

_FREE_FORM = frozenset(
    {
        "parameters",
        "output_schema",
        "input_schema",
        "schema",
        "arguments",
        "annotations",
        "attributes",
        "metadata",
        "client_metadata",
        "chat_template_kwargs",
        "vllm_xargs",
        "json",
        "guided_json",
        "structural_tag",
    }
)
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|(?P<value>\[\.\.\.\])")
_BOUND = re.compile(
    r"Expected `(?P<type>\w+)`(?P<length> of length)? (?P<sign>[<>]=?) (?P<limit>\S+)"
)


def decode_json(body: bytes) -> Any:
    """Decode plain JSON. Raises `InvalidRequest` for anything that is not JSON in UTF-8, or is nested too deeply.

    Lone surrogates (escaped or not), NaN and infinities are rejected here, so that all text can be encoded again.
    """
    if not body.strip():
        raise InvalidRequest("The request body is empty. Send a JSON object.", code="invalid_json")
    if len(body) > MAX_VALUES and body.count(b",") > MAX_VALUES:
        raise InvalidRequest(
            f"The request body has more than {MAX_VALUES} commas. Send fewer values, or long texts as files.",
            code="invalid_json",
        )
    try:
        raw = msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"The request body is not valid UTF-8: {error.reason}.", code="invalid_json"
        ) from None
    except RecursionError:
        raise _nested_too_deeply() from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(
            f"We could not parse the JSON body of your request: {error}.", code="invalid_json"
        ) from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _too_deep(raw):
        raise _nested_too_deeply()
    return raw


def decode_object(body: bytes) -> dict[str, Any]:
    """Like `decode_json`, and rejects anything but an object."""
    raw = decode_json(body)
    if not isinstance(raw, dict):
        raise InvalidRequest(
            f"The request body must be a JSON object, but it is {name_type(raw)}.",
            code="invalid_json",
        )
    return raw


def _too_deep(raw: Any) -> bool:
    level = [raw] if isinstance(raw, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            below
            for value in level
            for below in (value.values() if type(value) is dict else value)
            if type(below) is dict or type(below) is list
        ]
        if not level:
            return False
    return True


def _nested_too_deeply() -> InvalidRequest:
    return InvalidRequest(
        f"The request body is nested more than {MAX_DEPTH} levels deep.", code="invalid_json"
    )


def convert(raw: Any, into: type[T], param: str | ParamPath = ()) -> T:
    """Convert `raw` to `into`. Raises `InvalidRequest` with the path of the invalid value, below `param`."""
    try:
        return msgspec.convert(raw, into)
    except msgspec.ValidationError:
        pruned = without_nulls(raw)
    try:
        return msgspec.convert(pruned, into)
    except msgspec.ValidationError as error:
        raise explain(str(error), pruned, into, param) from None


def without_nulls(raw: Any) -> Any:
    """`raw` without the keys whose value is null, except in free-form JSON."""
    if type(raw) is dict:
        return {
            key: value if key in _FREE_FORM and type(value) is dict else without_nulls(value)
            for key, value in raw.items()
            if value is not None
        }
    if type(raw) is list:
        return [without_nulls(value) for value in raw]
    return raw


def members(union: Any) -> dict[str, type[Any]]:
    """The members of a union of tagged Structs, by `type`."""
    found: dict[str, type[Any]] = {}
    for cls in get_args(union):
        assert issubclass(cls, Tagged), cls
        assert type_of(cls) not in found, f"two members of a union are {type_of(cls)}"
        found[type_of(cls)] = cls
    return found


def one_of(table: Mapping[str, type[T]], raw: Any, param: str | ParamPath) -> type[T]:
    """The union member that `raw` names with `type`. Raises `InvalidRequest` that lists the members."""
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    kind = raw.get("type")
    place = (*param_path(param), "type")
    if kind is None:
        raise missing(place, f"It is one of: {listed(table)}.")
    if not isinstance(kind, str):
        raise wrong_type(place, "a string", kind)
    cls = table.get(kind)
    if cls is None:
        raise not_among(place, kind, table)
    return cls


# Error messages.


def _text(param: str | ParamPath) -> str:
    return param_text(param_path(param))


def missing(param: str | ParamPath, hint: str = "") -> InvalidRequest:
    """The error for a missing required parameter."""
    return InvalidRequest(
        f"Missing required parameter: '{_text(param)}'.{' ' if hint else ''}{hint}",
        param=param,
        code="missing_required_parameter",
    )


def wrong_type(param: str | ParamPath, expected: str, got: Any) -> InvalidRequest:
    """The error for a parameter of the wrong type."""
    return InvalidRequest(
        f"Invalid type for '{_text(param)}': expected {expected}, but got {name_type(got)} instead.",
        param=param,
        code="invalid_type",
    )


def not_among(
    param: str | ParamPath, got: Any, allowed: Mapping[str, Any] | list[str]
) -> InvalidRequest:
    """The error for a parameter whose value is not one of the allowed ones."""
    return InvalidRequest(
        f"Invalid value for '{_text(param)}': '{shortened(got)}'. Supported values are: {listed(allowed)}.",
        param=param,
        code="invalid_value",
    )


def listed(names: Mapping[str, Any] | list[str]) -> str:
    """Format names for a sentence: 'a', 'b', and 'c'."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def shortened(value: Any) -> str:
    """Format a client's value for a sentence."""
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def check_length(raw: list[Any], param: str | ParamPath) -> None:
    """Reject an array of more than `MAX_ITEMS`. Decoding blocks other requests."""
    if len(raw) > MAX_ITEMS:
        raise InvalidRequest(
            f"Invalid '{_text(param)}': array too long. Expected an array with maximum length {MAX_ITEMS}, but got an array with "
            f"length {len(raw)} instead.",
            param=param,
            code="array_above_max_length",
        )


def name_type(value: Any) -> str:
    """The JSON type of `value`, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


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
        hint = f"It is one of: {listed(_tags(kind))}." if absent[1] == "type" else ""
        return missing((*place, absent[1]), hint)
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
    choices = [
        str(choice)
        for each in alternatives
        if isinstance(each, inspect.LiteralType)
        for choice in each.values
    ]
    if what.startswith("Invalid enum value"):
        return not_among(param, value, choices)
    if "matching regex" in what:
        return InvalidRequest(
            f"Invalid '{_text(param)}': '{shortened(value)}' does not match the pattern "
            f"{what.partition('matching regex ')[2]}.",
            param=param,
            code="invalid_value",
        )
    if what.startswith("Expected"):
        names = [_NAMES[type(each)] for each in alternatives if type(each) in _NAMES]
        if choices:
            names.append(f"one of {listed(choices)}")
        return wrong_type(param, _one_of(list(dict.fromkeys(names))), value)
    return InvalidRequest(f"Invalid '{_text(param)}': {what}.", param=param, code="invalid_value")


def _one_of(names: list[str]) -> str:
    """Several types as OpenAI's server lists them: `one of a string or array`."""
    if len(names) < 2:
        return names[0] if names else "something else"
    bare = [name.removeprefix("an ").removeprefix("a ") for name in names[1:]]
    return f"one of {', '.join([names[0], *bare[:-1]])} or {bare[-1]}"


def _out_of_bounds(bound: re.Match[str], value: Any, param: ParamPath) -> InvalidRequest:
    """The error for a value out of range, with OpenAI's codes: `integer_below_min_value`, `decimal_above_max_value`,
    `string_above_max_length`, …"""
    kind = {"int": "integer", "float": "decimal", "str": "string"}.get(bound["type"], bound["type"])
    side = "above_max" if bound["sign"].startswith("<") else "below_min"
    limit = bound["limit"].removesuffix(".0")
    if bound["length"]:
        which, size = ("maximum", "long") if side == "above_max" else ("minimum", "short")
        article = "an" if kind == "array" else "a"
        problem = (
            f"{kind} too {size}. Expected {article} {kind} with {which} length {limit}, but got {article} {kind} with length "
            f"{len(value)} instead."
        )
    else:
        beyond = "above maximum" if side == "above_max" else "below minimum"
        problem = f"{kind} {beyond} value. Expected a value {bound['sign']} {limit}, but got {shortened(value)} instead."
    return InvalidRequest(
        f"Invalid '{_text(param)}': {problem}",
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
