"""Result blocks of server tools."""

from __future__ import annotations

from typing import Literal, TypeAlias

from gateway.sdk.wire import Tagged

ErrorCode: TypeAlias = Literal[
    "invalid_tool_input",
    "unavailable",
    "max_uses_exceeded",
    "too_many_requests",
    "execution_time_exceeded",
    "url_not_accessible",
]


class WebSearchResult(Tagged, frozen=True, kw_only=True, tag="web_search_result"):
    """A search hit. `encrypted_content` of the first hit contains what the model has read of the whole search,
    encrypted."""

    url: str
    title: str
    encrypted_content: str
    page_age: str | None = None


class WebSearchError(Tagged, frozen=True, kw_only=True, tag="web_search_tool_result_error"):
    error_code: ErrorCode


class WebSearchAnswer(Tagged, frozen=True, kw_only=True, tag="web_search_tool_result"):
    tool_use_id: str
    content: list[WebSearchResult] | WebSearchError


class TextSource(Tagged, frozen=True, kw_only=True, tag="text"):
    media_type: Literal["text/plain"] = "text/plain"
    data: str


class Document(Tagged, frozen=True, kw_only=True, tag="document"):
    source: TextSource
    title: str | None
    citations: None = None


class WebFetchResult(Tagged, frozen=True, kw_only=True, tag="web_fetch_result"):
    """A page as the model has read it. `encrypted_content` is an extension of this server, as in `WebSearchResult`."""

    url: str
    content: Document
    retrieved_at: str | None = None
    encrypted_content: str


class WebFetchError(Tagged, frozen=True, kw_only=True, tag="web_fetch_tool_result_error"):
    error_code: ErrorCode


class WebFetchAnswer(Tagged, frozen=True, kw_only=True, tag="web_fetch_tool_result"):
    tool_use_id: str
    content: WebFetchResult | WebFetchError


class CodeResult(Tagged, frozen=True, kw_only=True, tag="code_execution_result"):
    """`content` lists files; it is empty here."""

    stdout: str
    stderr: str
    return_code: int
    content: list[str] = []


class CodeError(Tagged, frozen=True, kw_only=True, tag="code_execution_tool_result_error"):
    error_code: ErrorCode


class CodeAnswer(Tagged, frozen=True, kw_only=True, tag="code_execution_tool_result"):
    tool_use_id: str
    content: CodeResult | CodeError


class BashResult(Tagged, frozen=True, kw_only=True, tag="bash_code_execution_result"):
    """Like `CodeResult`."""

    stdout: str
    stderr: str
    return_code: int
    content: list[str] = []


class BashError(Tagged, frozen=True, kw_only=True, tag="bash_code_execution_tool_result_error"):
    error_code: ErrorCode


class BashAnswer(Tagged, frozen=True, kw_only=True, tag="bash_code_execution_tool_result"):
    tool_use_id: str
    content: BashResult | BashError


class McpText(Tagged, frozen=True, kw_only=True, tag="text"):
    text: str
    citations: None = None


class McpAnswer(Tagged, frozen=True, kw_only=True, tag="mcp_tool_result"):
    tool_use_id: str
    is_error: bool
    content: list[McpText]


ToolAnswer: TypeAlias = WebSearchAnswer | WebFetchAnswer | CodeAnswer | BashAnswer | McpAnswer
