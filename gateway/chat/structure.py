"""What a chat request says of the form of its answer: `response_format`, and the fields of self-hosted engines."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.constraints import Const, Constraint, Grammar, OneOf, Regex
from gateway.errors import InvalidRequest, Unsupported
from gateway.protocols import Capability, TextFormat
from gateway.wire.structured import (
    JsonSchemaResponse,
    StructuredOutputs,
    StructuredParameters,
    TextResponse,
)

_OLDER = ("json", "regex", "choice", "grammar")


def text_format_of(request: StructuredParameters) -> TextFormat:
    """The text format, from whichever parameter says it; raises `InvalidRequest` where two do."""
    asked = _asked(request)
    wanted = request.response_format
    if wanted is not None and asked is not None and not isinstance(wanted, TextResponse):
        raise InvalidRequest(
            f"'response_format' and '{asked[0]}' both say what the answer must be. Send one of them.",
            param=asked[0],
            code="mutually_exclusive_parameters",
        )
    match wanted:
        case JsonSchemaResponse(json_schema=schema):
            return TextFormat(
                kind="json_schema",
                name=schema.name,
                schema=schema.schema or {},
                strict=bool(schema.strict),
                description=schema.description,
            )
        case None | TextResponse():
            pass
        case _:
            return TextFormat(kind="json_object")
    match asked:
        case (param, "json", value):
            return TextFormat(
                kind="json_schema", name="answer", schema=_schema(value, param), strict=True
            )
        case (_, "json_object", _):
            return TextFormat(kind="json_object")
        case _:
            return TextFormat()


def text_place(request: StructuredParameters) -> str:
    """Where a request says what the final text must be, as a path."""
    if isinstance(request.response_format, JsonSchemaResponse):
        return "response_format.json_schema.schema"
    asked = _asked(request)
    return "response_format" if asked is None else asked[0]


def structure_of(
    request: StructuredParameters, capabilities: frozenset[Capability]
) -> Constraint | None:
    """What no text format can say: a pattern, a choice, a grammar. Raises `Unsupported` for what the engine cannot do."""
    asked = _asked(request)
    if asked is None:
        return None
    param, kind, value = asked
    match kind:
        case "regex":
            _need("regex", capabilities, param)
            return Regex(value)
        case "choice":
            if not value:
                raise InvalidRequest("There is nothing to choose from.", param=param)
            return OneOf(tuple(map(Const, value)))
        case "grammar":
            syntax: Any = "gbnf" if "::=" in value else "lark"
            _need(syntax, capabilities, param)
            return Grammar(syntax, value)
        case "structural_tag":
            raise Unsupported(
                "Structural tags are not available on this server. Use tools, or a JSON schema.",
                param=param,
            )
        case _:
            return None


def _asked(request: StructuredParameters) -> tuple[str, str, Any] | None:
    """The parameter that says what the final text must be, what kind of thing it says, and the thing."""
    found: list[tuple[str, str, Any]] = []
    outputs = request.structured_outputs
    if outputs is not None:
        for name in StructuredOutputs.__struct_fields__:
            value = getattr(outputs, name)
            if value is not None and value is not False:
                found.append((f"structured_outputs.{name}", name, value))
        if not found:
            raise InvalidRequest(
                "structured_outputs says nothing. Give one of json, regex, choice, grammar and json_object.",
                param="structured_outputs",
            )
    for name in _OLDER:
        value = getattr(request, f"guided_{name}")
        if value is not None:
            found.append((f"guided_{name}", name, value))
    if len(found) > 1:
        raise InvalidRequest(
            f"'{found[0][0]}' and '{found[1][0]}' both say what the answer must be. Send one of them.",
            param=found[1][0],
            code="mutually_exclusive_parameters",
        )
    return found[0] if found else None


def _schema(value: Any, param: str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            value = None
    if not isinstance(value, dict):
        raise InvalidRequest(
            "The JSON schema is an object, or the text of one.", param=param, code="invalid_value"
        )
    return value


def _need(capability: Capability, capabilities: frozenset[Capability], param: str) -> None:
    if capability not in capabilities:
        raise Unsupported(
            f"The engine of this model cannot enforce '{capability}'. Leave it out, or use another model.",
            param=param,
        )
