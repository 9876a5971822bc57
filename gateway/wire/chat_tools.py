"""Tools and `tool_choice` in the form of Chat Completions: the function is nested.

They become the flat ones of Responses, which everything behind the API knows.
"""

from __future__ import annotations

from typing import Any

from gateway.errors import InvalidRequest
from gateway.wire.common import JsonObject
from gateway.wire.decoding import (
    convert,
    missing,
    name_type,
    not_among,
    shortened,
    wrong_type,
)
from gateway.wire.tools import (
    AllowedToolsChoice,
    CustomChoice,
    CustomTool,
    FunctionChoice,
    FunctionTool,
    Tool,
    ToolChoice,
)

_KINDS = ["function", "custom"]
_CHOICES = [*_KINDS, "allowed_tools"]


def decode_chat_tools(raw: Any, param: str = "tools") -> list[Tool]:
    """A request's tools from plain JSON; raises `InvalidRequest` with the precise parameter."""
    if not isinstance(raw, list):
        raise wrong_type(param, "an array of tools", raw)
    return [_tool(each, f"{param}[{index}]") for index, each in enumerate(raw)]


def decode_functions(raw: Any, param: str = "functions") -> list[Tool]:
    """The legacy `functions`, likewise."""
    if not isinstance(raw, list):
        raise wrong_type(param, "an array of functions", raw)
    return [_function(each, f"{param}[{index}]") for index, each in enumerate(raw)]


def _tool(raw: Any, param: str) -> Tool:
    kind, inner = _nested(raw, _KINDS, param)
    if kind == "function":
        return _function(inner, f"{param}.function")
    grammar = inner.get("format")
    if isinstance(grammar, dict) and isinstance(grammar.get("grammar"), dict):
        inner = {**inner, "format": {"type": grammar.get("type"), **grammar["grammar"]}}
    return convert({**inner, "type": "custom"}, CustomTool, f"{param}.custom")


def _function(raw: Any, param: str) -> FunctionTool:
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    return convert({**raw, "type": "function"}, FunctionTool, param)


def _nested(raw: Any, kinds: list[str], param: str) -> tuple[str, JsonObject]:
    """The kind of a tool or choice, and the object that stands under its name."""
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    kind = raw.get("type")
    if kind is None:
        raise missing(f"{param}.type")
    if not isinstance(kind, str):
        raise wrong_type(f"{param}.type", "a string", kind)
    if kind not in kinds:
        raise not_among(f"{param}.type", kind, kinds)
    inner = raw.get(kind)
    if inner is None:
        hint = ""
        if "name" in raw:
            hint = f"The flat form without '{kind}' is of the Responses API."
        raise missing(f"{param}.{kind}", hint)
    if not isinstance(inner, dict):
        raise wrong_type(f"{param}.{kind}", "an object", inner)
    return kind, inner


def decode_chat_choice(raw: Any, param: str = "tool_choice") -> ToolChoice:
    """A request's `tool_choice` from plain JSON; raises `InvalidRequest` with the precise parameter."""
    if isinstance(raw, str):
        if raw in ("none", "auto", "required"):
            return raw  # type: ignore[return-value]  # one of the three, as just tested
        raise InvalidRequest(
            f"Invalid value: '{shortened(raw)}'. Supported values are: 'none', 'auto', and 'required', "
            "or an object that names a tool.",
            param=param,
            code="invalid_value",
        )
    kind, inner = _nested(raw, _CHOICES, param)
    where = f"{param}.{kind}"
    match kind:
        case "function":
            return convert({**inner, "type": kind}, FunctionChoice, where)
        case "custom":
            return convert({**inner, "type": kind}, CustomChoice, where)
        case _:
            choice = convert({**inner, "type": kind}, AllowedToolsChoice, where)
            tools = [
                {"type": each.get("type"), "name": _allowed_name(each, f"{where}.tools[{index}]")}
                for index, each in enumerate(choice.tools)
            ]
            return AllowedToolsChoice(mode=choice.mode, tools=tools)


def _allowed_name(raw: JsonObject, param: str) -> str:
    kind, inner = _nested(raw, _KINDS, param)
    name = inner.get("name")
    if not isinstance(name, str):
        raise missing(f"{param}.{kind}.name")
    return name


def decode_function_call(raw: Any, param: str = "function_call") -> ToolChoice:
    """The legacy `function_call`: `none`, `auto`, or an object that names a function."""
    if raw in ("none", "auto"):
        return raw  # type: ignore[no-any-return]  # one of the two, as just tested
    if isinstance(raw, str):
        raise not_among(param, raw, ["none", "auto"])
    if not isinstance(raw, dict):
        raise InvalidRequest(
            f"Invalid type for '{param}': expected a string or an object, but got {name_type(raw)} instead.",
            param=param,
            code="invalid_type",
        )
    return convert({**raw, "type": "function"}, FunctionChoice, param)
