"""The parts of messages and of tool outputs, as the two APIs write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.errors import Unsupported
from gateway.wire import content as parts
from gateway_openai.config import OpenAIConfig

Part = parts.MessageContent | parts.ToolOutputContent


def chat_content(content: Sequence[Part], param: str, config: OpenAIConfig) -> Any:
    """Of a user's, developer's or system's message in Chat Completions: a string where that says it."""
    check_parts(content, param, config)
    if len(content) == 1 and isinstance(text := content[0], parts.InputText | parts.OutputText):
        return text.text
    return [_chat_part(part, f"{param}.content[{index}]") for index, part in enumerate(content)]


def response_content(content: Sequence[Part], param: str, config: OpenAIConfig) -> Any:
    """Of any message in the Responses API."""
    check_parts(content, param, config)
    return [_response_part(part) for part in content]


def check_parts(content: Sequence[Part], param: str, config: OpenAIConfig) -> None:
    """Refuse what the upstream takes none of. Raises `Unsupported`."""
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
            f"The upstream of this model takes no {kind}. Send the content as text.",
            param=f"{param}.content[{index}].type",
        )


def _chat_part(part: Part, param: str) -> dict[str, Any]:
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
                "The upstream of this model takes images by 'image_url' alone.",
                param=f"{param}.file_id",
            )
        case parts.InputAudio():
            return {"type": "input_audio", "input_audio": msgspec.to_builtins(part.input_audio)}
        case parts.InputFile():
            if part.file_url is not UNSET:
                raise Unsupported(
                    "The upstream of this model takes no files by URL. Send 'file_data'.",
                    param=f"{param}.file_url",
                )
            named = {
                "filename": part.filename,
                "file_data": part.file_data,
                "file_id": part.file_id,
            }
            return {"type": "file", "file": {k: v for k, v in named.items() if v is not UNSET}}


def _response_part(part: Part) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(part)
    match part:
        case parts.OutputText():
            return {"type": "output_text", "text": part.text}
        case parts.InputImage():
            return {key: value for key, value in told.items() if value is not None}
        case _:
            return told


def chat_output(output: str | list[parts.ToolOutputContent], param: str) -> Any:
    """Of a tool's message in Chat Completions, which takes text alone."""
    if isinstance(output, str):
        return output
    told = []
    for index, part in enumerate(output):
        if not isinstance(part, parts.InputText):
            raise Unsupported(
                "The upstream of this model takes only text as the output of a tool.",
                param=f"{param}.output[{index}].type",
            )
        told.append({"type": "text", "text": part.text})
    return told[0]["text"] if len(told) == 1 else told


def response_output(
    output: str | list[parts.ToolOutputContent], param: str, config: OpenAIConfig
) -> Any:
    """Of a call's output in the Responses API."""
    if isinstance(output, str):
        return output
    check_parts(output, param, config)
    return [_response_part(part) for part in output]
