"""From what MCP servers say to what a model reads."""

from __future__ import annotations

from typing import Any

import msgspec
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from gateway.protocols import ServedTool, ToolDefinition, ToolResult


def result_of(result: CallToolResult) -> ToolResult:
    """A tool's answer as text."""
    texts = [text for part in result.content if (text := _text(part))]
    if not texts and result.structured_content is not None:
        texts = [msgspec.json.encode(result.structured_content).decode()]
    failed = bool(result.is_error)
    whole = "\n".join(texts) or ("The tool failed and did not say why." if failed else "")
    return ToolResult(text=whole, failed=failed)


def _text(part: Any) -> str:
    match part:
        case TextContent():
            return part.text
        case ImageContent() | AudioContent():
            return f"[{part.mime_type}, {len(part.data) * 3 // 4} bytes: cannot be shown here]"
        case ResourceLink():
            return f"[{part.name}: {part.uri}]"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=BlobResourceContents() as blob):
            return f"[{blob.uri}, {len(blob.blob) * 3 // 4} bytes: cannot be shown here]"
        case _:
            return f"[{getattr(part, 'type', 'content')}: cannot be shown here]"


def served_tool(
    tool: Tool,
    *,
    time_limit: float,
    output_limit: int,
    needs_approval: bool,
    counted_as: str | None,
) -> ServedTool:
    """A tool as the gateway knows it."""
    hints = (
        tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    )
    return ServedTool(
        definition=ToolDefinition(
            name=tool.name,
            description=tool.description or tool.title,
            parameters={"type": "object", **tool.input_schema},
        ),
        time_limit=time_limit,
        output_limit=output_limit,
        needs_approval=needs_approval,
        counted_as=counted_as,
        hints=hints,
    )
