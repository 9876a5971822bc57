"""Translation of structural tags (xgrammar's, as accepted by vLLM and SGLang) to constraints, which every engine can
translate."""

from __future__ import annotations

from typing import Any, Final

from gateway.base.constraints import (
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
from gateway.base.errors import InvalidRequest, ParamPath, Unsupported
from gateway.engines.triggers import after_trigger
from gateway.generation.tag_fields import Fields, read_format, read_tag
from gateway.plugins.protocols import Capability
from gateway.wire.field_errors import shortened

MAX_DEPTH: Final = 32
"""Maximum nesting depth of formats."""
MAX_FORMATS: Final = 1000
"""Maximum number of formats in one structural tag."""


def structural_tag(value: Any, param: ParamPath) -> tuple[Constraint, frozenset[Capability]]:
    """Return the constraint of a structural tag, and the capabilities that an engine needs to enforce it.

    `value` is an object or its JSON text, in the form with `format` or the older form with `structures` and `triggers`.
    Raises `InvalidRequest` with a path below `param`, and `Unsupported` for formats that cannot be enforced here.
    """
    formats = _Formats()
    return formats.constraint(value, param, 0), frozenset(formats.needs)


class _Formats:
    """The formats of one tag."""

    def __init__(self) -> None:
        self.needs: set[Capability] = set()
        self._read = 0

    def constraint(
        self, value: Any, param: ParamPath, depth: int, kind: str | None = None
    ) -> Constraint:
        """Return the constraint of a format, or of the whole tag if `depth` is 0. `kind` is the type of the format, if
        the format need not name it."""
        kind, fields, param = read_format(value, param, kind) if depth else read_tag(value, param)
        self._count(param, 0 if kind == "structures" else 1)
        if depth > MAX_DEPTH:
            raise InvalidRequest(
                f"The structural tag is nested more than {MAX_DEPTH} formats deep.",
                param=param[:MAX_DEPTH],
                code="schema_too_large",
            )
        match kind:
            case "const_string":
                return Const(fields["value"])
            case "json_schema":
                return JsonSchema(fields["json_schema"])
            case "regex":
                self.needs.add("regex")
                return Regex(fields["pattern"])
            case "grammar":
                syntax: Any = "gbnf" if "::=" in fields["grammar"] else "lark"
                self.needs.add(syntax)
                return Grammar(syntax, fields["grammar"])
            case "any_text":
                return FreeText()
            case "sequence":
                return Sequence(self._elements(fields, param, depth))
            case "or":
                return OneOf(self._elements(fields, param, depth))
            case "tag":
                return self._tag(fields, param, depth)
            case "structure":
                begin, end = Const(fields["begin"]), Const(fields["end"])
                return Sequence((begin, JsonSchema(fields["schema"]), end))
            case "tags_with_separator":
                return self._separated(fields, param, depth)
            case "triggered_tags" | "structures":
                return self._triggered(fields, param, depth)
            case _:
                return self._repeated(kind, fields, param, depth)

    def _count(self, param: ParamPath, formats: int = 1) -> None:
        """Count formats that were read, or that occur once more in the constraint than in the tag. Raises
        `InvalidRequest` if they are too many."""
        self._read += formats
        if self._read > MAX_FORMATS:
            raise InvalidRequest(
                f"The structural tag has more than {MAX_FORMATS} formats.",
                param=param,
                code="schema_too_large",
            )

    def _elements(self, fields: Fields, param: ParamPath, depth: int) -> tuple[Constraint, ...]:
        return tuple(
            self.constraint(each, (*param, "elements", index), depth + 1)
            for index, each in enumerate(fields["elements"])
        )

    def _repeated(self, kind: str, fields: Fields, param: ParamPath, depth: int) -> Constraint:
        body = self.constraint(fields["content"], (*param, "content"), depth + 1)
        match kind:
            case "optional":
                return Repeat(body, 0, 1)
            case "star":
                return Repeat(body, 0, None)
            case "plus":
                return Repeat(body, 1, None)
        least, most = fields["min"], fields["max"]
        if most is not None and most < least:
            raise InvalidRequest(
                "'max' is below 'min'.", param=(*param, "max"), code="invalid_value"
            )
        return Repeat(body, least, most)

    def _tag(self, tag: Fields, param: ParamPath, depth: int) -> Constraint:
        begin, ends = tag["begin"], tag["end"]
        content = self.constraint(tag["content"], (*param, "content"), depth + 1)
        if content == FreeText() and len(ends) == 1 and ends[0]:
            return Sequence((Const(begin), FreeText(ends[0])))
        end = OneOf(tuple(map(Const, ends))) if len(ends) > 1 else Const(ends[0])
        return Sequence((Const(begin), content, end))

    def _tags(self, fields: Fields, param: ParamPath, depth: int) -> tuple[Constraint, ...]:
        name, kind = ("structures", "structure") if "structures" in fields else ("tags", "tag")
        return tuple(
            self.constraint(each, (*param, name, index), depth + 1, kind)
            for index, each in enumerate(fields[name])
        )

    def _separated(self, fields: Fields, param: ParamPath, depth: int) -> Constraint:
        before = self._read
        tags = self._tags(fields, param, depth)
        one = OneOf(tags) if len(tags) > 1 else tags[0]
        made: Constraint = one
        if not fields["stop_after_first"]:
            self._count(param, self._read - before)
            separator = Const(fields["separator"])
            made = Sequence((one, Repeat(Sequence((separator, one)), 0, None)))
        return made if fields["at_least_one"] else Repeat(made, 0, 1)

    def _triggered(self, fields: Fields, param: ParamPath, depth: int) -> Constraint:
        """Return the constraint of free text in which the trigger begins one of the tags."""
        before = self._read
        tags = self._tags(fields, param, depth)
        trigger = fields["triggers"]
        if fields["at_least_one"] and "tags" in fields:
            self._count(param, self._read - before)
        if not tags:
            raise InvalidRequest("There are no tags.", param=param, code="empty_array")
        for each in fields.get("structures", fields.get("tags", ())):
            if not each["begin"].startswith(trigger):
                raise InvalidRequest(
                    f"The trigger '{shortened(trigger)}' must be the beginning of each tag, and '{shortened(each['begin'])}' "
                    "begins otherwise.",
                    param=(*param, "triggers"),
                    code="invalid_value",
                )
        body = OneOf(tags) if len(tags) > 1 else tags[0]
        once = fields["stop_after_first"]
        if not fields["at_least_one"]:
            if once:
                raise Unsupported(
                    "stop_after_first without at_least_one cannot be enforced on this server.",
                    param=(*param, "stop_after_first"),
                )
            return Triggered(trigger, body)
        first = Sequence((FreeText(trigger), after_trigger(body, trigger)))
        return first if once else Sequence((first, Triggered(trigger, body)))
