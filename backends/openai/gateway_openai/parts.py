"""Converts content parts of messages and tool outputs for both APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.sdk import ParamPath, Unsupported
from gateway.sdk.wire import content as parts
from gateway_openai.config import OpenAIConfig

Part = parts.MessageContent | parts.ToolOutputContent


def chat_content(content: Sequence[Part], param: ParamPath, config: OpenAIConfig) -> Any:
    """Content of a user, developer or system message in Chat Completions; a plain string if it is text only."""
    check_parts(content, param, config)
    if len(content) == 1 and isinstance(text := content[0], parts.InputText | parts.OutputText):
        return text.text
    return [_chat_part(part, (*param, "content", index)) for index, part in enumerate(content)]


def response_content(content: Sequence[Part], param: ParamPath, config: OpenAIConfig) -> Any:
    """Content of any message in the Responses API."""
    check_parts(content, param, config)
    return [_response_part(part) for part in content]


def check_parts(content: Sequence[Part], param: ParamPath, config: OpenAIConfig) -> None:
    """Raise `Unsupported` for parts that the upstream does not accept."""
    takes = config.takes
    for index, part in enumerate(content):
        match part:
            case parts.InputImage() if not takes.images:
                kind = "images"
            case parts.InputFile() if not takes.files:
                kind = "files"
            case parts.InputAudio() if not takes.audio:
                kind = "audio"
            case _:
                continue
        raise Unsupported(
            f"The upstream of this model accepts no {kind}. Send the content as text.",
            param=(*param, "content", index, "type"),
        )


def _chat_part(part: Part, param: ParamPath) -> dict[str, Any]:
    match part:
        case parts.InputText() | parts.OutputText():
            return {"type": "text", "text": part.text}
        case parts.Refusal():
            return {"type": "refusal", "refusal": part.refusal}
        case parts.InputImage(image_url=str(url)):
            image = {"url": url}
            if part.detail != "auto":
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        case parts.InputImage():
            raise Unsupported(
                "The upstream of this model accepts images only by 'image_url'.",
                param=(*param, "file_id"),
            )
        case parts.InputAudio():
            return {"type": "input_audio", "input_audio": msgspec.to_builtins(part.input_audio)}
        case parts.InputFile():
            if part.file_url is not UNSET:
                raise Unsupported(
                    "The upstream of this model accepts no files by URL. Send 'file_data'.",
                    param=(*param, "file_url"),
                )
            named = {
                "filename": part.filename,
                "file_data": part.file_data,
                "file_id": part.file_id,
            }
            return {"type": "file", "file": {k: v for k, v in named.items() if v is not UNSET}}


def _response_part(part: Part) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(part)
    match part:
        case parts.OutputText():
            return {"type": "output_text", "text": part.text}
        case parts.InputImage():
            return {key: value for key, value in body.items() if value is not None}
        case _:
            return body


def chat_output(output: str | list[parts.ToolOutputContent], param: ParamPath) -> Any:
    """Content of a tool message in Chat Completions, which accepts only text."""
    if isinstance(output, str):
        return output
    body = []
    for index, part in enumerate(output):
        if not isinstance(part, parts.InputText):
            raise Unsupported(
                "The upstream of this model accepts only text as the output of a tool.",
                param=(*param, "output", index, "type"),
            )
        body.append({"type": "text", "text": part.text})
    return body[0]["text"] if len(body) == 1 else body


def response_output(
    output: str | list[parts.ToolOutputContent], param: ParamPath, config: OpenAIConfig
) -> Any:
    """Output of a call in the Responses API."""
    if isinstance(output, str):
        return output
    check_parts(output, param, config)
    return [_response_part(part) for part in output]
