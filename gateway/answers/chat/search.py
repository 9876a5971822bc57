"""Web search in Chat Completions (`web_search_options`)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from gateway.base.errors import PermissionDenied, Unsupported
from gateway.tools.available import AvailableTools, BoundTool
from gateway.tools.omitted import OmittedTools
from gateway.wire.chat import WebSearchOptions
from gateway.wire.tools import WebSearchTool, type_of

WEB_SEARCH = type_of(WebSearchTool)


def searching_tools(offered: AvailableTools, omitted: OmittedTools) -> Sequence[BoundTool]:
    """Return the available web search tools. Raises `PermissionDenied` if the principal may not use them, and
    `Unsupported` if there are none, unless unavailable tools may be omitted."""
    found = offered.by_type.get(WEB_SEARCH, ())
    if not found and WEB_SEARCH in offered.forbidden:
        raise PermissionDenied(
            "This API key may not search the web. Leave the parameter out.",
            param="web_search_options",
            code="tool_not_allowed",
        )
    if not found and offered.unavailable == "omit":
        omitted.report([WEB_SEARCH])
    elif not found:
        raise Unsupported(
            "Web search is not available on this server. Leave the parameter out, or have the server configured with a "
            'plugin that searches, or to leave it out itself (unavailable_tools = "omit").',
            param="web_search_options",
        )
    return found


def web_search(options: WebSearchOptions) -> WebSearchTool:
    """Return the equivalent tool of the Responses API."""
    size, location = options.search_context_size, options.user_location
    return WebSearchTool(
        search_context_size=UNSET if size is None else size,
        user_location=UNSET if location is None else location.approximate,
    )
