"""Filters on the attributes of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gateway.sdk import InvalidRequest, ParamPath
from gateway.sdk.wire import missing, not_among, wrong_type

Filter: TypeAlias = Callable[[Mapping[str, Any]], bool]

_MAX_CONDITIONS = 256
"""Maximum number of conditions in one filter."""
_COMPARISONS = ["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
_COMPOUNDS = ["and", "or"]


def filter_of(raw: Any) -> Filter:
    """Compile a filter to a predicate on the attributes of a file. Raises `InvalidRequest` with the invalid parameter
    below `filters`.

    A file without the key equals nothing, and is neither greater nor less. Numbers and strings are not comparable.
    """
    return _read(raw, ("filters",), [_MAX_CONDITIONS])


def _read(raw: Any, param: ParamPath, left: list[int]) -> Filter:
    left[0] -= 1
    if left[0] < 0:
        raise InvalidRequest(
            f"A filter has at most {_MAX_CONDITIONS} conditions.", param=param, code="invalid_value"
        )
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    kind = raw.get("type")
    if kind is None:
        raise missing((*param, "type"))
    if kind in _COMPOUNDS:
        given = raw.get("filters")
        if not isinstance(given, list):
            raise wrong_type((*param, "filters"), "an array of filters", given)
        parts = [_read(each, (*param, "filters", index), left) for index, each in enumerate(given)]
        if kind == "and":
            return lambda attributes: all(part(attributes) for part in parts)
        return lambda attributes: any(part(attributes) for part in parts)
    if kind not in _COMPARISONS:
        raise not_among((*param, "type"), kind, [*_COMPARISONS, *_COMPOUNDS])
    key = raw.get("key")
    if not isinstance(key, str):
        raise wrong_type((*param, "key"), "a string", key)
    if "value" not in raw:
        raise missing((*param, "value"))
    value = raw["value"]
    if kind in ("in", "nin"):
        if not isinstance(value, list) or not all(map(_is_plain, value)):
            raise wrong_type((*param, "value"), "an array of strings, numbers or booleans", value)
        wanted = kind == "in"
        return lambda attributes: (
            any(_equals(attributes.get(key), each) for each in value) == wanted
        )
    if not _is_plain(value):
        raise wrong_type((*param, "value"), "a string, a number or a boolean", value)
    return lambda attributes: _compare(kind, attributes.get(key), value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _equals(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _compare(kind: str, one: Any, other: Any) -> bool:
    if kind == "eq":
        return _equals(one, other)
    if kind == "ne":
        return not _equals(one, other)
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if not numbers and not (isinstance(one, str) and isinstance(other, str)):
        return False
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    match kind:
        case "gt":
            return bool(one > other)
        case "gte":
            return bool(one >= other)
        case "lt":
            return bool(one < other)
        case _:
            return bool(one <= other)
