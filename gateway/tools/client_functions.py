"""Functions and free-text tools that the client defines, optionally in namespaces."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET, UnsetType

from gateway.base.constraints import Constraint, Grammar, Regex
from gateway.base.errors import ParamPath, Unsupported
from gateway.plugins.protocols import ToolDefinition
from gateway.plugins.protocols.output_constraints import custom_schema
from gateway.tools.roles import CallRole, ClientTool
from gateway.wire import items
from gateway.wire import tools as wire

ClientFunction: TypeAlias = wire.FunctionTool | wire.CustomTool | wire.NamespaceTool

BRINGS_TOOLS = (items.AdditionalTools, items.ToolSearchOutput)
"""The types of items that contain tools."""


def qualified_name(name: str, namespace: str | None) -> str:
    """The name by which the model sees a tool, with its namespace if it has one. Renderers use it for earlier calls
    too."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


def client_functions(
    tool: ClientFunction, param: ParamPath, *, without: Container[str] = ()
) -> Iterator[ClientTool]:
    """The tools of one entry of `tools`, at `param`. Tools whose name for the model is in `without` are left out."""
    if isinstance(tool, wire.NamespaceTool):
        namespace: str | None = tool.name
        inner = [((*param, "tools", at), each) for at, each in enumerate(tool.tools)]
    else:
        namespace, inner = None, [(param, tool)]
    for place, each in inner:
        name = qualified_name(each.name, namespace)
        if name in without:
            continue
        if isinstance(each, wire.FunctionTool):
            definition = ToolDefinition(
                name=name,
                description=_optional(each.description),
                parameters=_optional(each.parameters),
                strict=_optional(each.strict),
                namespace=namespace,
            )
            role = CallRole(
                item_type="function_call",
                namespace=namespace,
                shown_name=each.name,
                parameters=definition.parameters,
            )
        else:
            definition = ToolDefinition(
                name=name,
                description=_optional(each.description),
                parameters=custom_schema(),
                kind="custom",
                grammar=_grammar(each.format),
                namespace=namespace,
            )
            role = CallRole(item_type="custom_tool_call", namespace=namespace, shown_name=each.name)
        yield ClientTool(definition, role, (*place, "name"))


def client_tools_of(context: Sequence[items.Item]) -> list[tuple[ParamPath, ClientFunction]]:
    """The tools that the items of a conversation define, oldest first, each with its position in the request.

    Only functions and free-text tools of the client, optionally in namespaces, may be in items. Other types must be in
    `tools`.
    """
    item_tools: list[tuple[ParamPath, ClientFunction]] = []
    for index, item in enumerate(context):
        if not isinstance(item, BRINGS_TOOLS):
            continue
        for at, tool in enumerate(item.tools):
            place = ("input", index, "tools", at)
            if not isinstance(tool, wire.FunctionTool | wire.CustomTool | wire.NamespaceTool):
                raise Unsupported(
                    f"An item cannot bring tools of type '{wire.type_of(tool)}'. Send them in 'tools'.",
                    param=place,
                    code="unsupported_tool",
                )
            item_tools.append((place, tool))
    return item_tools


def _optional(value: Any) -> Any:
    return None if value is UNSET else value


def _grammar(written: wire.CustomFormat | UnsetType) -> Constraint | None:
    if not isinstance(written, wire.CustomGrammarFormat):
        return None
    definition = written.definition
    return Grammar("lark", definition) if written.syntax == "lark" else Regex(definition)
