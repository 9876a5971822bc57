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


_SHOWN_BELOW = {
    frozenset({"image_url"}): "(The image follows.)",
    frozenset({"file"}): "(The file follows.)",
}
_BOTH_SHOWN = "(The image and the file follow.)"
_UNSEEN = "(An image, which this model cannot see.)"


def chat_content(content: Sequence[Part], param: ParamPath, config: OpenAIConfig) -> Any:
    """Content of a user, developer or system message in Chat Completions; a plain string if it is text only."""
    check_parts(content, (*param, "content"), config)
    if len(content) == 1 and isinstance(text := content[0], parts.InputText | parts.OutputText):
        return text.text
    return [_chat_part(part, (*param, "content", index)) for index, part in enumerate(content)]


def response_content(content: Sequence[Part], param: ParamPath, config: OpenAIConfig) -> Any:
    """Content of any message in the Responses API."""
    check_parts(content, (*param, "content"), config)
    return [_response_part(part) for part in content]


def check_parts(content: Sequence[Part], param: ParamPath, config: OpenAIConfig) -> None:
    """Raise `Unsupported` for parts that the upstream does not accept. `param` is the path of `content`."""
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
            param=(*param, index, "type"),
        )


def _chat_part(part: Part, param: ParamPath) -> dict[str, Any]:
    match part:
        case parts.InputText() | parts.OutputText():
            return {"type": "text", "text": part.text}
        case parts.EncryptedContent():  # never in a turn: the gateway has opened it
            return {"type": "text", "text": part.encrypted_content}
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


def chat_output(
    output: str | list[parts.ToolOutputContent], param: ParamPath, config: OpenAIConfig
) -> tuple[Any, list[dict[str, Any]]]:
    """Content of a tool message in Chat Completions, which accepts only text; and the images and files of the output,
    as parts of a user message."""
    if isinstance(output, str):
        return output, []
    output = _without_unseen_images(output, config)
    check_parts(output, (*param, "output"), config)
    text: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for index, part in enumerate(output):
        made = _chat_part(part, (*param, "output", index))
        (text if isinstance(part, parts.InputText) else shown).append(made)
    if shown and not any(part["text"] for part in text):
        kinds = frozenset(part["type"] for part in shown)
        text = [{"type": "text", "text": _SHOWN_BELOW.get(kinds, _BOTH_SHOWN)}]
    return text[0]["text"] if len(text) == 1 else text, shown


def response_output(
    output: str | list[parts.ToolOutputContent], param: ParamPath, config: OpenAIConfig
) -> Any:
    """Output of a call in the Responses API."""
    if isinstance(output, str):
        return output
    output = _without_unseen_images(output, config)
    check_parts(output, (*param, "output"), config)
    return [_response_part(part) for part in output]


def _without_unseen_images(
    output: list[parts.ToolOutputContent], config: OpenAIConfig
) -> list[parts.ToolOutputContent]:
    """`output`, with a note for each image that the upstream does not see. Rejecting it would block every later request
    of an agent whose tool has returned an image."""
    if config.takes.images:
        return output
    return [
        parts.InputText(text=_UNSEEN) if isinstance(part, parts.InputImage) else part
        for part in output
    ]
