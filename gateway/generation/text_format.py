"""The required format of an answer: `response_format`, and the corresponding parameters of self-hosted servers."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.base.constraints import Const, Constraint, Grammar, OneOf, Regex
from gateway.base.errors import InvalidRequest, ParamPath, Unsupported, param_text
from gateway.generation.structural_tags import structural_tag
from gateway.plugins.protocols import Capability, TextFormat
from gateway.wire.json_text import decode_text
from gateway.wire.parameters import SharedParameters, StructuredOutputs
from gateway.wire.structured import (
    JsonObjectResponse,
    JsonSchemaResponse,
    StructuralTagResponse,
    StructuredParameters,
    TextResponse,
)

_TEXT = TextFormat()
_OLDER = ("json", "regex", "choice", "grammar")


def text_format_of(request: StructuredParameters) -> TextFormat:
    """Return the text format of a request, from the parameter that sets it. Raises `InvalidRequest` if two parameters
    do."""
    wanted = request.response_format
    match wanted:
        case None | TextResponse() | StructuralTagResponse():
            return shared_format(request)
        case JsonSchemaResponse(json_schema=schema):
            found = TextFormat(
                kind="json_schema",
                name=schema.name,
                schema=schema.schema or {},
                strict=bool(schema.strict),
                description=schema.description,
            )
        case JsonObjectResponse(schema=plain) if plain:
            found = TextFormat(kind="json_schema", name="answer", schema=plain, strict=True)
        case _:
            found = TextFormat(kind="json_object")
    return shared_format(request, found, "response_format")


def shared_format(
    request: SharedParameters, wanted: TextFormat = _TEXT, param: str = ""
) -> TextFormat:
    """Return the text format set by `structured_outputs` or its older form; otherwise `wanted`, which the API's own
    parameter `param` set. Raises `InvalidRequest` if both are set."""
    asked = _requested_format(request)
    if asked is None:
        return wanted
    if wanted.kind != "text":
        raise InvalidRequest(
            f"'{param}' and '{param_text(asked[0])}' both say what the answer must be. Send one of them.",
            param=asked[0],
            code="mutually_exclusive_parameters",
        )
    match asked:
        case (place, "json", value):
            return TextFormat(
                kind="json_schema", name="answer", schema=_schema(value, place), strict=True
            )
        case (_, "json_object", _):
            return TextFormat(kind="json_object")
        case _:
            return wanted


def text_path(request: StructuredParameters) -> ParamPath:
    """Return the path of the parameter that sets the format of the final text."""
    if isinstance(request.response_format, JsonSchemaResponse):
        return ("response_format", "json_schema", "schema")
    if isinstance(request.response_format, JsonObjectResponse) and request.response_format.schema:
        return ("response_format", "schema")
    return shared_path(request) or ("response_format",)


def shared_path(request: SharedParameters) -> ParamPath:
    """Return the path of `structured_outputs` or its older form, if the request has one; otherwise an empty path."""
    asked = _requested_format(request)
    return () if asked is None else asked[0]


def structure_of(
    request: SharedParameters, capabilities: frozenset[Capability]
) -> Constraint | None:
    """Return the constraint that no text format can express: a pattern, a choice, a grammar or a structural tag. None
    if the request has none. Raises `Unsupported` if the engine does not support it."""
    asked = _requested_format(request)
    if asked is None:
        return None
    param, kind, value = asked
    needs: frozenset[Capability] = frozenset()
    match kind:
        case "regex":
            made: Constraint = Regex(value)
            needs = frozenset({"regex"})
        case "choice":
            if not value:
                raise InvalidRequest("The list of choices is empty.", param=param)
            made = OneOf(tuple(map(Const, value)))
        case "grammar":
            syntax: Any = "gbnf" if "::=" in value else "lark"
            made = Grammar(syntax, value)
            needs = frozenset({syntax})
        case "structural_tag":
            made, needs = structural_tag(value, param)
        case _:
            return None
    if absent := needs - capabilities:
        raise Unsupported(
            f"The engine of this model cannot enforce '{min(absent)}'. Leave it out, or use another model.",
            param=param,
        )
    return made


def _requested_format(request: SharedParameters) -> tuple[ParamPath, str, Any] | None:
    """Return the path of the shared parameter that sets the format of the final text, its kind and its value; None if
    there is none. Raises `InvalidRequest` if two are set."""
    if not request.structures:
        return None
    found: list[tuple[ParamPath, str, Any]] = []
    outputs = request.structured_outputs
    if outputs is not None:
        for name in StructuredOutputs.__struct_fields__:
            value = getattr(outputs, name)
            if value is not None and value is not False:
                found.append((("structured_outputs", name), name, value))
        if not found:
            raise InvalidRequest(
                "structured_outputs is empty. Set one of json, regex, choice, grammar, json_object and structural_tag.",
                param="structured_outputs",
            )
    wanted = request.response_format if isinstance(request, StructuredParameters) else None
    if isinstance(wanted, StructuralTagResponse):
        found.append((("response_format",), "structural_tag", wanted.tag()))
    for name in _OLDER:
        value = getattr(request, f"guided_{name}")
        if value is not None:
            found.append(((f"guided_{name}",), name, value))
    if len(found) > 1:
        raise InvalidRequest(
            f"'{param_text(found[0][0])}' and '{param_text(found[1][0])}' both say what the answer must be. Send one of them.",
            param=found[1][0],
            code="mutually_exclusive_parameters",
        )
    return found[0] if found else None


def _schema(value: Any, param: ParamPath) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = decode_text(value)
        except msgspec.DecodeError:
            value = None
    if not isinstance(value, dict):
        raise InvalidRequest(
            "The JSON schema must be an object, or the JSON text of one.",
            param=param,
            code="invalid_value",
        )
    return value
