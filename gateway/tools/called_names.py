"""Finding a tool by the name in a model's call, which may differ from the name that the model was given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.plugins.protocols import ToolDefinition

_BETWEEN = (".", "/", ":", "__")
"""Separators that models write between a namespace and a name."""
_FUNCTIONS = "functions."
"""The namespace of all functions in several families of models, and in the instructions of Codex."""


def called_names(tools: Sequence[ToolDefinition]) -> dict[str, ToolDefinition]:
    """Map names to tools: the names of `tools`, and all other names that can only mean one of them.

    A tool in a namespace is also found as `namespace.name`, and by its name alone if no other tool has that name. Every
    function is also found with the prefix `functions.`.
    """
    named = {tool.name: tool for tool in tools}
    others: dict[str, ToolDefinition | None] = {}
    for tool in tools:
        if tool.kind == "builtin":
            continue
        for name in _other_names(tool):
            known = others.setdefault(name, tool)
            if known is not tool:
                others[name] = None  # ambiguous
    for name, meant in others.items():
        if meant is not None:
            named.setdefault(name, meant)
    return named


def _other_names(tool: ToolDefinition) -> Iterator[str]:
    for name in {tool.name, *_addresses(tool)}:
        yield name
        yield _FUNCTIONS + name


def _addresses(tool: ToolDefinition) -> Iterator[str]:
    if "__" in tool.name:
        yield tool.name.replace("__", ".")
    if not (namespace := tool.namespace):
        return
    name = tool.name.removeprefix(namespace)
    if not namespace.endswith("__"):
        name = name.removeprefix("__")
    yield name
    spaces = {namespace, namespace.rstrip("_"), namespace.rstrip("_").replace("__", ".")} - {""}
    for between in _BETWEEN:
        yield from (f"{space}{between}{name}" for space in spaces)
