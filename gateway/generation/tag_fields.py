"""Reading and checking the fields of a structural tag's formats. See `gateway.generation.structural_tags`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from gateway.base.errors import InvalidRequest, ParamPath, Unsupported, param_text
from gateway.wire.field_errors import missing, shortened, wrong_type
from gateway.wire.json_text import decode_text

_MAX_REPEAT: Final = 1000
MAX_MARKER: Final = 256
"""Maximum length of the texts that begin, end and separate tags, in characters."""

T = TypeVar("T")
Fields: TypeAlias = Mapping[str, Any]
"""The fields of a format that has been read."""
_Reader: TypeAlias = Callable[[Any, ParamPath], Any]
"""Reads the value of one field; the value is None if the field is missing. Raises `InvalidRequest` or `Unsupported`,
naming the field's path."""


def read_tag(value: Any, param: ParamPath) -> tuple[str, Fields, ParamPath]:
    """Read a structural tag, which is an object or its JSON text. Returns the result of `read_format` for its `format`.
    For the older form, returns its fields `structures` and `triggers` as a format of the type "structures"."""
    if isinstance(value, str):
        try:
            value = decode_text(value)
        except msgspec.DecodeError:
            raise InvalidRequest(
                "The structural tag must be an object, or the JSON text of one.",
                param=param,
                code="invalid_value",
            ) from None
    tag = _object(value, param)
    if "structures" in tag:
        return "structures", _read(_OLDER_FORM, tag, param), param
    if "format" in tag:
        return read_format(tag["format"], (*param, "format"))
    raise missing((*param, "format"), "Or send structures and triggers.")


def read_format(
    value: Any, param: ParamPath, kind: str | None = None
) -> tuple[str, Fields, ParamPath]:
    """Read a format, without the formats within it. Returns its type, its fields and its path.

    `kind` is the type of a format that need not name it: a tag in a list, or a structure of the older form. Raises
    `InvalidRequest` with a path below `param`, and `Unsupported` for types that cannot be enforced here.
    """
    described = _object(value, param)
    if kind == "structure":
        return kind, _read(_STRUCTURE, described, param), param
    if kind is None:
        kind = _text(described.get("type"), (*param, "type"))
    if kind not in _FIELDS:
        raise Unsupported(
            f"Formats of the type '{shortened(kind)}' cannot be enforced on this server. Use one of: "
            f"{', '.join(_FIELDS)}.",
            param=(*param, "type"),
        )
    fields = _read(_FIELDS[kind], described, param)
    if kind == "tags_with_separator" and not fields["stop_after_first"]:
        fields["separator"] = _marker(described.get("separator"), (*param, "separator"))
    return kind, fields, param


def _read(
    readers: Mapping[str, _Reader], described: Mapping[str, Any], param: ParamPath
) -> dict[str, Any]:
    return {name: read(described.get(name), (*param, name)) for name, read in readers.items()}


def _typed(value: Any, param: ParamPath, kind: type[T], name: str) -> T:
    if isinstance(value, kind):
        return value
    raise missing(param) if value is None else wrong_type(param, name, value)


def _object(value: Any, param: ParamPath) -> dict[str, Any]:
    return _typed(value, param, dict, "an object")


def _list(value: Any, param: ParamPath) -> list[Any]:
    return _typed(value, param, list, "an array")


def _text(value: Any, param: ParamPath) -> str:
    return _typed(value, param, str, "a string")


def _filled(value: Any, param: ParamPath) -> list[Any]:
    found = _list(value, param)
    if not found:
        raise InvalidRequest(
            f"Invalid '{param_text(param)}': empty array. Expected an array with minimum length 1, but got an empty array "
            "instead.",
            param=param,
            code="empty_array",
        )
    return found


def _marker(value: Any, param: ParamPath) -> str:
    """Read a text that begins, ends or separates tags."""
    text = _text(value, param)
    if len(text) > MAX_MARKER:
        raise InvalidRequest(
            f"Invalid '{param_text(param)}': string too long. Expected a string with maximum length {MAX_MARKER}, but got a "
            f"string with length {len(text)} instead.",
            param=param,
            code="string_above_max_length",
        )
    return text


def _ends(value: Any, param: ParamPath) -> list[str]:
    """Read the texts of which one ends a tag."""
    sent = value if isinstance(value, list) else [value]
    if not sent or not all(isinstance(end, str) for end in sent):
        raise wrong_type(param, "a string or an array of strings", value)
    return [_marker(end, param) for end in sent]


def _trigger(value: Any, param: ParamPath) -> str:
    """Read `triggers`, which must have one element."""
    first, *others = _filled(value, param)
    if others:
        raise Unsupported(
            "Several triggers cannot be enforced on this server. Send the one with which all tags begin.",
            param=param,
        )
    if not isinstance(first, str) or not first:
        raise wrong_type((*param, 0), "a string that is not empty", first)
    return _marker(first, (*param, 0))


def _schema(value: Any, param: ParamPath) -> dict[str, Any]:
    return {} if value is True else dict(_object(value, param))


def _number(value: Any, param: ParamPath) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_REPEAT:
        raise InvalidRequest(
            f"'{param[-1]}' is a whole number from 0 to {_MAX_REPEAT}.",
            param=param,
            code="invalid_value",
        )
    return value


def _limit(value: Any, param: ParamPath) -> int | None:
    return None if value in (None, -1) else _number(value, param)


def _flag(value: Any, param: ParamPath) -> bool:
    return value is True


def _refused(value: Any, param: ParamPath) -> None:
    if value:
        raise Unsupported(
            f"'{param[-1]}' cannot be enforced on this server. Leave it out.", param=param
        )


def _format(value: Any, param: ParamPath) -> Any:
    """Return a format unread. It is read later."""
    return value


_TAG: Mapping[str, _Reader] = {"begin": _marker, "end": _ends, "content": _format}
_STRUCTURE: Mapping[str, _Reader] = {"begin": _marker, "schema": _schema, "end": _marker}
_TRIGGERED: Mapping[str, _Reader] = {
    "triggers": _trigger, "excludes": _refused, "at_least_one": _flag, "stop_after_first": _flag,
}  # fmt: skip
_OLDER_FORM: Mapping[str, _Reader] = {"structures": _list, **_TRIGGERED}
_FIELDS: Mapping[str, Mapping[str, _Reader]] = {
    "const_string": {"value": _text},
    "json_schema": {"json_schema": _schema},
    "regex": {"pattern": _text},
    "grammar": {"grammar": _text},
    "any_text": {"excludes": _refused},
    "sequence": {"elements": _filled},
    "or": {"elements": _filled},
    "optional": {"content": _format},
    "star": {"content": _format},
    "plus": {"content": _format},
    "repeat": {"content": _format, "min": _number, "max": _limit},
    "tag": _TAG,
    "triggered_tags": {"tags": _filled, **_TRIGGERED},
    "tags_with_separator": {"tags": _filled, "at_least_one": _flag, "stop_after_first": _flag},
}  # fmt: skip
"""The fields of each type of format."""
