"""Arguments of the tools."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gateway.sdk import ToolDefinition

CITING = "Cite what you say from a page by its cursor and lines, as in 【3†L7】 or 【3†L7-L9】."


class SearchArguments(Struct, frozen=True, kw_only=True):
    """`web_search`."""

    query: str
    topn: int | float | None = None


class OpenArguments(Struct, frozen=True, kw_only=True):
    """`open_page`. -1 means "not given", as models that were trained with the tool write it."""

    id: int | float | str = -1
    cursor: int | float = -1
    loc: int | float = -1
    num_lines: int | float = -1


class FindArguments(Struct, frozen=True, kw_only=True):
    """`find_in_page`."""

    pattern: str
    cursor: int | float = -1


T = TypeVar("T")


def read_arguments(arguments: dict[str, Any], kind: type[T]) -> T:
    """Decode arguments. Raises `msgspec.ValidationError`, with a message that the model can use."""
    given = {name: value for name, value in arguments.items() if value is not None}
    read: T = msgspec.convert(given, kind, strict=False)
    return read


_CURSOR = {"type": "integer", "description": "A page by its cursor; by default the latest."}

SEARCH = ToolDefinition(
    name="web_search",
    description=(
        "Search the web. Shows results with numbered links, which open_page opens by their number. "
        + CITING
    ),
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "topn": {"type": "integer", "description": "How many results to show."},
        },
        "required": ["query"],
    },
)
OPEN = ToolDefinition(
    name="open_page",
    description=(
        "Open a page: a link of an earlier result by its number, as shown in 【number†text】, or a URL. "
        "Without id, scroll in a page that is open. " + CITING
    ),
    parameters={
        "type": "object",
        "properties": {
            "id": {
                "type": ["integer", "string"],
                "description": "The number of a link, or a whole URL.",
            },
            "cursor": _CURSOR,
            "loc": {"type": "integer", "description": "The line to begin at."},
            "num_lines": {"type": "integer", "description": "How many lines to show."},
        },
    },
)
FIND = ToolDefinition(
    name="find_in_page",
    description="Find a text in an open page. Shows the lines that have it. " + CITING,
    parameters={
        "type": "object",
        "properties": {"pattern": {"type": "string"}, "cursor": _CURSOR},
        "required": ["pattern"],
    },
)


def built_in(name: str, tool: ToolDefinition) -> ToolDefinition:
    """The tool as the gpt-oss models know it; they were trained with this description."""
    return ToolDefinition(
        name=f"browser.{name}",
        description=tool.description,
        parameters=tool.parameters,
        kind="builtin",
    )
