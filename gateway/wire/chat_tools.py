"""Tools and `tool_choice` in the nested form of Chat Completions.

They are converted to the flat form of the Responses API, which all other code uses.
"""

from __future__ import annotations

from typing import Any

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.wire.common import JsonObject
from gateway.wire.decoding import convert
from gateway.wire.field_errors import (
    MAX_TOOLS,
    check_length,
    missing,
    not_among,
    shortened,
    wrong_type,
)
from gateway.wire.tools import (
    AllowedToolsChoice,
    CustomChoice,
    CustomGrammarFormat,
    CustomTool,
    FunctionChoice,
    FunctionTool,
    Tool,
    ToolChoice,
)

_KINDS = ["function", "custom"]
_CHOICES = [*_KINDS, "allowed_tools"]


def decode_chat_tools(raw: Any, param: ParamPath = ("tools",)) -> list[Tool]:
    """Decode a request's tools from plain JSON. Raises `InvalidRequest` with the precise parameter."""
    if not isinstance(raw, list):
        raise wrong_type(param, "an array of tools", raw)
    check_length(raw, param, MAX_TOOLS)
    return [_tool(each, (*param, index)) for index, each in enumerate(raw)]


def decode_functions(raw: Any, param: ParamPath = ("functions",)) -> list[Tool]:
    """Decode the legacy `functions`, in the same way as `decode_chat_tools`."""
    if not isinstance(raw, list):
        raise wrong_type(param, "an array of functions", raw)
    check_length(raw, param, MAX_TOOLS)
    return [_function(each, (*param, index)) for index, each in enumerate(raw)]


def _tool(raw: Any, param: ParamPath) -> Tool:
    kind, inner = _nested(raw, _KINDS, param)
    if kind == "function":
        return _function(inner, (*param, "function"))
    format_ = inner.get("format")
    grammar = format_.get("grammar") if isinstance(format_, dict) else None
    if isinstance(format_, dict) and grammar is not None:
        place = (*param, "custom", "format", "grammar")
        if not isinstance(grammar, dict):
            raise wrong_type(place, "an object", grammar)
        if format_.get("type") == "grammar":  # checked here, where its path in the request is known
            convert({**grammar, "type": "grammar"}, CustomGrammarFormat, place)
        inner = {**inner, "format": {"type": format_.get("type"), **grammar}}
    return convert({**inner, "type": "custom"}, CustomTool, (*param, "custom"))


def _function(raw: Any, param: ParamPath) -> FunctionTool:
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    return convert({**raw, "type": "function"}, FunctionTool, param)


def _nested(raw: Any, kinds: list[str], param: ParamPath) -> tuple[str, JsonObject]:
    """The type of a tool or choice, and the object under the key of that name."""
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    kind = raw.get("type")
    if kind is None:
        raise missing((*param, "type"))
    if not isinstance(kind, str):
        raise wrong_type((*param, "type"), "a string", kind)
    if kind not in kinds:
        raise not_among((*param, "type"), kind, kinds)
    inner = raw.get(kind)
    if inner is None:
        hint = ""
        if "name" in raw:
            hint = f"The flat form without '{kind}' is of the Responses API."
        raise missing((*param, kind), hint)
    if not isinstance(inner, dict):
        raise wrong_type((*param, kind), "an object", inner)
    return kind, inner


def decode_chat_choice(raw: Any, param: ParamPath = ("tool_choice",)) -> ToolChoice:
    """Decode a request's `tool_choice` from plain JSON. Raises `InvalidRequest` with the precise parameter."""
    if isinstance(raw, str):
        if raw in ("none", "auto", "required"):
            return raw  # type: ignore[return-value]  # one of the three, as just tested
        raise InvalidRequest(
            f"Invalid value: '{shortened(raw)}'. Supported values are: 'none', 'auto', and 'required', "
            "or an object that names a tool.",
            param=param,
            code="invalid_value",
        )
    if not isinstance(raw, dict):
        raise wrong_type(param, "a string or an object", raw)
    kind, inner = _nested(raw, _CHOICES, param)
    where = (*param, kind)
    match kind:
        case "function":
            return convert({**inner, "type": kind}, FunctionChoice, where)
        case "custom":
            return convert({**inner, "type": kind}, CustomChoice, where)
        case _:
            choice = convert({**inner, "type": kind}, AllowedToolsChoice, where)
            tools = [
                {"type": each.get("type"), "name": _allowed_name(each, (*where, "tools", index))}
                for index, each in enumerate(choice.tools)
            ]
            return AllowedToolsChoice(mode=choice.mode, tools=tools)


def _allowed_name(raw: JsonObject, param: ParamPath) -> str:
    kind, inner = _nested(raw, _KINDS, param)
    name = inner.get("name")
    if name is None:
        raise missing((*param, kind, "name"))
    if not isinstance(name, str):
        raise wrong_type((*param, kind, "name"), "a string", name)
    return name


def decode_function_call(raw: Any, param: ParamPath = ("function_call",)) -> ToolChoice:
    """Decode the legacy `function_call`: `none`, `auto`, or an object that names a function."""
    if raw in ("none", "auto"):
        return raw  # type: ignore[no-any-return]  # one of the two, as just tested
    if isinstance(raw, str):
        raise not_among(param, raw, ["none", "auto"])
    if not isinstance(raw, dict):
        raise wrong_type(param, "a string or an object", raw)
    return convert({**raw, "type": "function"}, FunctionChoice, param)
