"""Finds unknown members in the objects of a request. OpenAI's server rejects them; this gateway only with
`compatibility = "strict"`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Struct, inspect

from gateway.base.errors import ParamPath


def unknown_member(raw: Mapping[str, Any], into: Any, place: ParamPath = ()) -> ParamPath | None:
    """The path of the first unknown member in `raw`; None if there is none. `raw` is plain JSON at the path `place` and
    is to be converted to the Struct `into`.

    Free-form JSON is not examined, nor are values of a wrong type, which the conversion reports. Takes linear time.
    """
    return _in_object(raw, _members(into), place)


class _Shape(Struct, frozen=True):
    """The types that a value may have, as far as they have members."""

    items: _Shape | None = None
    """The elements of an array."""
    values: _Shape | None = None
    """The values of an object with arbitrary keys."""
    structs: Mapping[Any, Any] = {}
    """The Structs that the value may be, by their `type`; a single one may have none."""


def _in_object(
    raw: Mapping[str, Any], members: Mapping[str, _Shape], place: ParamPath
) -> ParamPath | None:
    for key, value in raw.items():
        shape = members.get(key)
        if shape is None:
            return (*place, key)
        if type(value) in _CONTAINERS and (found := _in_value(value, shape, (*place, key))):
            return found
    return None


def _in_value(value: Any, shape: _Shape, place: ParamPath) -> ParamPath | None:
    if type(value) is list:
        return None if shape.items is None else _in_all(enumerate(value), shape.items, place)
    if shape.values is not None:
        return _in_all(value.items(), shape.values, place)
    structs = shape.structs
    cls = next(iter(structs.values())) if len(structs) == 1 else structs.get(_tag(value))
    return None if cls is None else _in_object(value, _members(cls), place)


def _in_all(
    values: Iterable[tuple[str | int, Any]], shape: _Shape, place: ParamPath
) -> ParamPath | None:
    for key, value in values:
        if type(value) in _CONTAINERS and (found := _in_value(value, shape, (*place, key))):
            return found
    return None


def _tag(value: Mapping[str, Any]) -> str | None:
    """The `type` of a member of a union. Items may lack it: see `gateway.wire.item_decoding`."""
    kind = value.get("type")
    if kind is None:
        return "message" if "role" in value else "item_reference"
    return kind if isinstance(kind, str) else None


@cache
def _members(cls: Any) -> Mapping[str, _Shape]:
    """The members of the JSON object of a Struct, by their names on the wire."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType), cls
    found = {field.encode_name: _shape(field.type) for field in info.fields}
    if info.tag_field is not None:
        found[info.tag_field] = _Shape()
    return found


def _shape(kind: inspect.Type) -> _Shape:
    items = values = None
    structs: dict[Any, Any] = {}
    for each in _alternatives(kind):
        match each:
            case inspect.ListType():
                items = _shape(each.item_type)
            case inspect.DictType():
                values = _shape(each.value_type)
            case inspect.StructType():
                structs[each.tag] = each.cls
            case _:
                pass
    return _Shape(items, values, structs)


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    match kind:
        case inspect.Metadata(type=inner):
            yield from _alternatives(inner)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _alternatives(each)
        case _:
            yield kind


_CONTAINERS = (dict, list)
