"""Structural tags (xgrammar's, as vLLM and SGLang take them) as constraints, which every engine can translate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.constraints import (
    Const,
    Constraint,
    FreeText,
    Grammar,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.engines.triggers import after_trigger
from gateway.errors import InvalidRequest, ParamPath, Unsupported, param_text
from gateway.protocols import Capability
from gateway.wire.field_errors import missing, shortened, wrong_type

MAX_DEPTH: Final = 32
"""Maximum nesting depth of formats."""
MAX_FORMATS: Final = 1000
"""Maximum number of formats in one structural tag."""
_MAX_REPEAT: Final = 1000
MAX_MARKER: Final = 256
"""Maximum length of the texts that begin, end and separate tags, in characters."""


def structural_tag(value: Any, param: ParamPath) -> tuple[Constraint, frozenset[Capability]]:
    """The constraint of a structural tag, an object or its JSON text, in the form with `structures` and `triggers` or that
    with `format`; and what an engine must be capable of to enforce it.

    Raises `InvalidRequest` with the place below `param`, and `Unsupported` for formats that cannot be enforced here.
    """
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            raise InvalidRequest(
                "The structural tag must be an object, or the JSON text of one.",
                param=param,
                code="invalid_value",
            ) from None
    tag = _object(value, param)
    reader = _Reader()
    if "structures" in tag:
        made = reader.structures(tag, param)
    elif "format" in tag:
        made = reader.format(tag["format"], (*param, "format"), 0)
    else:
        raise missing((*param, "format"), "Or send structures and triggers.")
    return made, frozenset(reader.needs)


class _Reader:
    """Reads the formats of one tag."""

    def __init__(self) -> None:
        self.needs: set[Capability] = set()
        self._read = 0

    def structures(self, tag: Mapping[str, Any], param: ParamPath) -> Constraint:
        """The older form."""
        place = (*param, "structures")
        tags: list[tuple[str, Constraint]] = []
        for index, each in enumerate(_list(tag["structures"], place)):
            at = (*place, index)
            self._count(at)
            structure = _object(each, at)
            begin = _marker(structure, "begin", at)
            schema = JsonSchema(_schema(structure, "schema", at))
            tags.append(
                (begin, Sequence((Const(begin), schema, Const(_marker(structure, "end", at)))))
            )
        return _triggered(tag, tags, param)

    def format(self, value: Any, param: ParamPath, depth: int) -> Constraint:
        self._count(param)
        if depth > MAX_DEPTH:
            raise InvalidRequest(
                f"The structural tag is nested more than {MAX_DEPTH} formats deep.",
                param=param[:MAX_DEPTH],
                code="schema_too_large",
            )
        described = _object(value, param)
        kind = _text(described, "type", param)
        match kind:
            case "const_string":
                return Const(_text(described, "value", param))
            case "json_schema":
                return JsonSchema(_schema(described, "json_schema", param))
            case "regex":
                self.needs.add("regex")
                return Regex(_text(described, "pattern", param))
            case "grammar":
                grammar = _text(described, "grammar", param)
                if "::=" in grammar:
                    self.needs.add("gbnf")
                    return Grammar("gbnf", grammar)
                self.needs.add("lark")
                return Grammar("lark", grammar)
            case "any_text":
                _refuse(described, "excludes", param)
                return FreeText()
            case "sequence":
                return Sequence(self._formats(described, "elements", param, depth))
            case "or":
                return OneOf(self._formats(described, "elements", param, depth))
            case "optional" | "star" | "plus" | "repeat":
                return self._repeated(kind, described, param, depth)
            case "tag":
                return self._tag(described, param, depth)[1]
            case "triggered_tags":
                before = self._read
                tags = self._tags(described, param, depth)
                if described.get("at_least_one") is True:
                    self._count(param, self._read - before)
                return _triggered(described, tags, param)
            case "tags_with_separator":
                return self._separated(described, param, depth)
            case _:
                raise Unsupported(
                    f"Formats of the type '{shortened(kind)}' cannot be enforced on this server. Use one of: "
                    f"{', '.join(_KINDS)}.",
                    param=(*param, "type"),
                )

    def _count(self, param: ParamPath, formats: int = 1) -> None:
        """Count formats that were read, or that are written once more than they were sent."""
        self._read += formats
        if self._read > MAX_FORMATS:
            raise InvalidRequest(
                f"The structural tag has more than {MAX_FORMATS} formats.",
                param=param,
                code="schema_too_large",
            )

    def _formats(
        self, described: Mapping[str, Any], key: str, param: ParamPath, depth: int
    ) -> tuple[Constraint, ...]:
        place = (*param, key)
        return tuple(
            self.format(each, (*place, index), depth + 1)
            for index, each in enumerate(_filled(described.get(key), place))
        )

    def _repeated(
        self, kind: str, described: Mapping[str, Any], param: ParamPath, depth: int
    ) -> Constraint:
        body = self.format(described.get("content"), (*param, "content"), depth + 1)
        match kind:
            case "optional":
                return Repeat(body, 0, 1)
            case "star":
                return Repeat(body, 0, None)
            case "plus":
                return Repeat(body, 1, None)
        least = _number(described, "min", param)
        most = described.get("max")
        if most in (None, -1):
            return Repeat(body, least, None)
        bound = _number(described, "max", param)
        if bound < least:
            raise InvalidRequest(
                "'max' is below 'min'.", param=(*param, "max"), code="invalid_value"
            )
        return Repeat(body, least, bound)

    def _tags(
        self, described: Mapping[str, Any], param: ParamPath, depth: int
    ) -> list[tuple[str, Constraint]]:
        place = (*param, "tags")
        found = []
        for index, each in enumerate(_filled(described.get("tags"), place)):
            self._count((*place, index))
            found.append(self._tag(_object(each, (*place, index)), (*place, index), depth + 1))
        return found

    def _tag(
        self, described: Mapping[str, Any], param: ParamPath, depth: int
    ) -> tuple[str, Constraint]:
        """A tag, and the text that it begins with."""
        begin = _marker(described, "begin", param)
        ends = described.get("end")
        sent = [end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, str)]
        if not sent or (isinstance(ends, list) and len(sent) < len(ends)):
            raise wrong_type((*param, "end"), "a string or an array of strings", ends)
        for each in sent:
            _check_length(each, (*param, "end"))
        content = self.format(described.get("content"), (*param, "content"), depth + 1)
        if content == FreeText() and len(sent) == 1 and sent[0]:
            return begin, Sequence((Const(begin), FreeText(sent[0])))
        end = OneOf(tuple(map(Const, sent))) if len(sent) > 1 else Const(sent[0])
        return begin, Sequence((Const(begin), content, end))

    def _separated(self, described: Mapping[str, Any], param: ParamPath, depth: int) -> Constraint:
        before = self._read
        tags = tuple(tag for _, tag in self._tags(described, param, depth))
        one = OneOf(tags) if len(tags) > 1 else tags[0]
        made: Constraint = one
        if described.get("stop_after_first") is not True:
            self._count(param, self._read - before)
            separator = Const(_marker(described, "separator", param))
            made = Sequence((one, Repeat(Sequence((separator, one)), 0, None)))
        return made if described.get("at_least_one") is True else Repeat(made, 0, 1)


_KINDS: Final = (
    "const_string", "json_schema", "regex", "grammar", "any_text", "sequence", "or", "optional", "star", "plus", "repeat",
    "tag", "triggered_tags", "tags_with_separator",
)  # fmt: skip


def _triggered(
    described: Mapping[str, Any], tags: list[tuple[str, Constraint]], param: ParamPath
) -> Constraint:
    """Free text in which the trigger begins one of the tags."""
    place = (*param, "triggers")
    triggers = _filled(described.get("triggers"), place)
    if not tags:
        raise InvalidRequest("There are no tags.", param=param, code="empty_array")
    if len(triggers) > 1:
        raise Unsupported(
            "Several triggers cannot be enforced on this server. Send the one with which all tags begin.",
            param=place,
        )
    trigger = triggers[0]
    if not isinstance(trigger, str) or not trigger:
        raise wrong_type((*place, 0), "a string that is not empty", trigger)
    _check_length(trigger, (*place, 0))
    for begin, _ in tags:
        if not begin.startswith(trigger):
            raise InvalidRequest(
                f"The trigger '{shortened(trigger)}' must be the beginning of each tag, and '{shortened(begin)}' begins "
                "otherwise.",
                param=place,
                code="invalid_value",
            )
    _refuse(described, "excludes", param)
    body: Constraint = OneOf(tuple(tag for _, tag in tags)) if len(tags) > 1 else tags[0][1]
    once = described.get("stop_after_first") is True
    if described.get("at_least_one") is not True:
        if once:
            raise Unsupported(
                "stop_after_first without at_least_one cannot be enforced on this server.",
                param=(*param, "stop_after_first"),
            )
        return Triggered(trigger, body)
    first = Sequence((FreeText(trigger), after_trigger(body, trigger)))
    return first if once else Sequence((first, Triggered(trigger, body)))


def _refuse(described: Mapping[str, Any], key: str, param: ParamPath) -> None:
    if described.get(key):
        raise Unsupported(
            f"'{key}' cannot be enforced on this server. Leave it out.", param=(*param, key)
        )


def _object(value: Any, param: ParamPath) -> Mapping[str, Any]:
    if value is None:
        raise missing(param)
    if not isinstance(value, dict):
        raise wrong_type(param, "an object", value)
    return value


def _list(value: Any, param: ParamPath) -> list[Any]:
    if value is None:
        raise missing(param)
    if not isinstance(value, list):
        raise wrong_type(param, "an array", value)
    return value


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


def _text(described: Mapping[str, Any], key: str, param: ParamPath) -> str:
    value = described.get(key)
    if value is None:
        raise missing((*param, key))
    if not isinstance(value, str):
        raise wrong_type((*param, key), "a string", value)
    return value


def _marker(described: Mapping[str, Any], key: str, param: ParamPath) -> str:
    value = _text(described, key, param)
    _check_length(value, (*param, key))
    return value


def _check_length(marker: str, param: ParamPath) -> None:
    if len(marker) > MAX_MARKER:
        raise InvalidRequest(
            f"Invalid '{param_text(param)}': string too long. Expected a string with maximum length {MAX_MARKER}, but got a "
            f"string with length {len(marker)} instead.",
            param=param,
            code="string_above_max_length",
        )


def _number(described: Mapping[str, Any], key: str, param: ParamPath) -> int:
    value = described.get(key)
    if type(value) is not int or not 0 <= value <= _MAX_REPEAT:
        raise InvalidRequest(
            f"'{key}' is a whole number from 0 to {_MAX_REPEAT}.",
            param=(*param, key),
            code="invalid_value",
        )
    return value


def _schema(described: Mapping[str, Any], key: str, param: ParamPath) -> dict[str, Any]:
    value = described.get(key)
    if value is True:
        return {}
    return dict(_object(value, (*param, key)))
