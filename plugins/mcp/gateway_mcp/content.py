"""Converts results and tools of MCP servers for the gateway."""

from __future__ import annotations

from base64 import b64decode
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

from gateway.sdk import ServerTool, ToolDefinition, ToolImage, ToolResult


def result_of(result: CallToolResult) -> ToolResult:
    """A tool's answer as text and images."""
    text = ""
    images: list[ToolImage] = []
    for part in result.content:
        if (image := _image(part, place=len(text))) is not None:
            images.append(image)
        elif shown := _text(part):
            text += f"{shown}\n"
    if not text and not images and result.structured_content is not None:
        text = msgspec.json.encode(result.structured_content).decode()
    failed = bool(result.is_error)
    if failed and not text and not images:
        text = "The tool failed and did not say why."
    return ToolResult(text=text.removesuffix("\n"), failed=failed, images=images)


def _image(part: Any, *, place: int) -> ToolImage | None:
    """The image that a part of an answer is, if it is one; None for data that is not base64."""
    match part:
        case ImageContent(data=encoded, mime_type=media_type):
            pass
        case EmbeddedResource(
            resource=BlobResourceContents(blob=encoded, mime_type=str(media_type))
        ) if media_type.startswith("image/"):
            pass
        case _:
            return None
    try:
        data = b64decode(encoded, validate=True)
    except ValueError:
        return None
    return ToolImage(data=data, media_type=media_type, place=place, note=_text(part))


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


def server_tool(
    tool: Tool,
    *,
    time_limit: float,
    output_limit: int,
    needs_approval: bool,
    counted_as: str | None,
) -> ServerTool:
    """A tool in the gateway's form."""
    hints = (
        tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    )
    return ServerTool(
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
