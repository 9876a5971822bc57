"""The content blocks of a request's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from gateway.sdk import ParamPath
from gateway.sdk.wire import (
    Tagged,
    Value,
    check_length,
    convert,
    members,
    missing,
    not_among,
    one_of,
    wrong_type,
)

# Undeclared fields are ignored: `cache_control`, `citations` and the like have no effect here.


class TextBlock(Tagged, frozen=True, kw_only=True, tag="text"):
    text: str


class Base64Source(Tagged, frozen=True, kw_only=True, tag="base64"):
    media_type: str
    data: str


class UrlSource(Tagged, frozen=True, kw_only=True, tag="url"):
    url: str


class FileSource(Tagged, frozen=True, kw_only=True, tag="file"):
    file_id: str


class ImageBlock(Tagged, frozen=True, kw_only=True, tag="image"):
    source: Base64Source | UrlSource | FileSource


class TextSource(Tagged, frozen=True, kw_only=True, tag="text"):
    data: str
    media_type: str = "text/plain"


class ContentSource(Tagged, frozen=True, kw_only=True, tag="content"):
    content: str | list[TextBlock | ImageBlock]


class DocumentBlock(Tagged, frozen=True, kw_only=True, tag="document"):
    source: TextSource | ContentSource | Base64Source | UrlSource | FileSource
    title: str | None = None
    context: str | None = None


class SearchResultBlock(Tagged, frozen=True, kw_only=True, tag="search_result"):
    content: list[TextBlock]
    source: str
    title: str


class ToolReferenceBlock(Tagged, frozen=True, kw_only=True, tag="tool_reference"):
    tool_name: str


class ToolResultBlock(Tagged, frozen=True, kw_only=True, tag="tool_result"):
    tool_use_id: str
    content: (
        str
        | list[TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock]
        | None
    ) = None
    is_error: bool | None = None


class ToolUseBlock(Tagged, frozen=True, kw_only=True, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class ThinkingBlock(Tagged, frozen=True, kw_only=True, tag="thinking"):
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Tagged, frozen=True, kw_only=True, tag="redacted_thinking"):
    data: str


class ServerToolUseBlock(Tagged, frozen=True, kw_only=True, tag="server_tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class McpToolUseBlock(Tagged, frozen=True, kw_only=True, tag="mcp_tool_use"):
    id: str
    name: str
    server_name: str
    input: dict[str, Any]


class ToolAnswerBlock(Tagged, frozen=True, kw_only=True, tag="tool_answer"):
    """Base class of the results of server tools. Not itself on the wire.

    `content` is unchanged from what was sent: an error, or the result.
    """

    tool_use_id: str
    content: Any = None


class WebSearchAnswerBlock(
    ToolAnswerBlock, frozen=True, kw_only=True, tag="web_search_tool_result"
):
    pass


class WebFetchAnswerBlock(ToolAnswerBlock, frozen=True, kw_only=True, tag="web_fetch_tool_result"):
    pass


class CodeAnswerBlock(ToolAnswerBlock, frozen=True, kw_only=True, tag="code_execution_tool_result"):
    pass


class BashAnswerBlock(
    ToolAnswerBlock, frozen=True, kw_only=True, tag="bash_code_execution_tool_result"
):
    pass


class EditorAnswerBlock(
    ToolAnswerBlock, frozen=True, kw_only=True, tag="text_editor_code_execution_tool_result"
):
    pass


class McpAnswerBlock(ToolAnswerBlock, frozen=True, kw_only=True, tag="mcp_tool_result"):
    is_error: bool | None = None


class McpListingBlock(Tagged, frozen=True, kw_only=True, tag="mcp_tool_listing"):
    """A tool listing of another vendor's server. Ignored: tools are listed again here."""


ServedBlock: TypeAlias = ServerToolUseBlock | McpToolUseBlock
AnswerBlock: TypeAlias = (
    WebSearchAnswerBlock
    | WebFetchAnswerBlock
    | CodeAnswerBlock
    | BashAnswerBlock
    | EditorAnswerBlock
    | McpAnswerBlock
)
Block: TypeAlias = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolResultBlock
    | ToolUseBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ServedBlock
    | AnswerBlock
    | McpListingBlock
)
Role: TypeAlias = Literal["user", "assistant", "system"]


class MessageParam(Value, frozen=True, kw_only=True):
    """One message. String content is equivalent to one text block."""

    role: Role
    content: list[Block]


_TEXT: dict[str, type[Block]] = {"text": TextBlock}
_BLOCKS: dict[Role, dict[str, type[Block]]] = {
    "user": {
        **_TEXT,
        "image": ImageBlock,
        "document": DocumentBlock,
        "search_result": SearchResultBlock,
        "tool_result": ToolResultBlock,
    },
    "assistant": {
        **_TEXT,
        "thinking": ThinkingBlock,
        "redacted_thinking": RedactedThinkingBlock,
        "tool_use": ToolUseBlock,
        **members(ServedBlock | AnswerBlock),
        "mcp_tool_listing": McpListingBlock,
    },
    "system": _TEXT,
}


def decode_messages(raw: Any) -> list[MessageParam]:
    """The messages of a request, from decoded JSON. Raises `InvalidRequest` with the path of the error."""
    if not isinstance(raw, list):
        raise wrong_type("messages", "an array of messages", raw)
    check_length(raw, "messages")
    return [_message(each, ("messages", index)) for index, each in enumerate(raw)]


def decode_system(raw: Any) -> list[str]:
    """The texts of `system`: a string, or a list of text blocks."""
    texts = []
    for block in _content(raw, ("system",), _TEXT):
        assert isinstance(block, TextBlock), "no other block is in the table"
        texts.append(block.text)
    return texts


def _message(raw: Any, param: ParamPath) -> MessageParam:
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    role = raw.get("role")
    if role is None:
        raise missing((*param, "role"))
    if not isinstance(role, str):
        raise wrong_type((*param, "role"), "a string", role)
    if role not in _BLOCKS:
        raise not_among((*param, "role"), role, list(_BLOCKS))
    if raw.get("content") is None:
        raise missing((*param, "content"))
    return MessageParam(
        role=role, content=_content(raw["content"], (*param, "content"), _BLOCKS[role])
    )


def _content(raw: Any, param: ParamPath, table: Mapping[str, type[Block]]) -> list[Block]:
    if isinstance(raw, str):
        return [TextBlock(text=raw)]
    if not isinstance(raw, list):
        raise wrong_type(param, "a string or an array of content blocks", raw)
    check_length(raw, param)
    blocks = []
    for index, each in enumerate(raw):
        where = (*param, index)
        blocks.append(convert(each, one_of(table, each, where), where))
    return blocks
