"""The tools that a model calls, by the names that it writes: not all models write the names that they were given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.protocols import ToolDefinition

_BETWEEN = (".", "/", ":", "__")
"""What models write between a namespace and a name."""
_FUNCTIONS = "functions."
"""The namespace of all functions, for models of several families and in the instructions of Codex."""


def called_names(tools: Sequence[ToolDefinition]) -> dict[str, ToolDefinition]:
    """`tools` by name, and by the other names that mean exactly one of them.

    A tool in a namespace is also meant by `namespace.name`, and by its bare name if no other tool has it; any function is with
    the prefix `functions.`.
    """
    named = {tool.name: tool for tool in tools}
    others: dict[str, ToolDefinition | None] = {}
    for tool in tools:
        if tool.kind == "builtin":
            continue
        for name in _other_names(tool):
            known = others.setdefault(name, tool)
            if known is not tool:
                others[name] = None  # it means several
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
