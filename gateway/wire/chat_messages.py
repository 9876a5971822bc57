"""The messages of Chat Completions, as clients send them."""

from __future__ import annotations

from typing import Any, TypeAlias

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.wire.common import JsonObject, Tagged, Value
from gateway.wire.content import AudioData, ImageDetail
from gateway.wire.decoding import convert
from gateway.wire.field_errors import (
    check_length,
    missing,
    not_among,
    refuse_media_beside,
    wrong_type,
)
from gateway.wire.unknown_members import unknown_member
from gateway.wire.usual_messages import usual_message

# Content parts.


class ChatPart(Tagged, frozen=True, kw_only=True):
    """Base of the parts of a prompt."""

    prompt_cache_breakpoint: JsonObject | None = None
    """Accepted, but without effect: every prefix is reusable."""


class TextPart(ChatPart, frozen=True, kw_only=True, tag="text"):
    text: str


class RefusalPart(Tagged, frozen=True, kw_only=True, tag="refusal"):
    refusal: str


class ImageUrl(Value, frozen=True, kw_only=True):
    url: str
    detail: ImageDetail = "auto"


class ImagePart(ChatPart, frozen=True, kw_only=True, tag="image_url"):
    image_url: ImageUrl


class AudioPart(ChatPart, frozen=True, kw_only=True, tag="input_audio"):
    input_audio: AudioData


class FileData(Value, frozen=True, kw_only=True):
    """A file as base64 data, or by id."""

    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None


class FilePart(ChatPart, frozen=True, kw_only=True, tag="file"):
    file: FileData


UserPart: TypeAlias = TextPart | ImagePart | AudioPart | FilePart
ToolPart: TypeAlias = TextPart | ImagePart | FilePart
"""OpenAI's API accepts only text here. Other servers, and agents that take screenshots, send images too."""
AssistantPart: TypeAlias = TextPart | RefusalPart


# Calls.


class CalledFunction(Value, frozen=True, kw_only=True):
    """`arguments` is JSON text."""

    name: str
    arguments: str


class CalledCustom(Value, frozen=True, kw_only=True):
    name: str
    input: str


class FunctionToolCall(Tagged, frozen=True, kw_only=True, tag="function"):
    id: str
    function: CalledFunction


class ChatCustomToolCall(Tagged, frozen=True, kw_only=True, tag="custom"):
    id: str
    custom: CalledCustom


ToolCall: TypeAlias = FunctionToolCall | ChatCustomToolCall


# Messages.


class MessageBase(Value, frozen=True, kw_only=True, tag_field="role"):
    """Base of the messages, distinguished by `role`."""


class UserMessage(MessageBase, frozen=True, kw_only=True, tag="user"):
    """`name` is accepted but ignored, also in the messages below: current chat templates do not use it."""

    content: str | list[UserPart]
    name: str | None = None


class SystemMessage(MessageBase, frozen=True, kw_only=True, tag="system"):
    content: str | list[TextPart]
    name: str | None = None


class DeveloperMessage(MessageBase, frozen=True, kw_only=True, tag="developer"):
    content: str | list[TextPart]
    name: str | None = None


class MadeImage(Value, frozen=True, kw_only=True):
    """An image that a model generated, in the form of OpenRouter's and LiteLLM's answers. Other members are not
    read."""

    image_url: ImageUrl


class AssistantMessage(MessageBase, frozen=True, kw_only=True, tag="assistant"):
    """The output of one generation. `reasoning_content` and `reasoning` are two names of the same field. `images` and
    `audio` occur in answers of other servers."""

    content: str | list[AssistantPart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: CalledFunction | None = None
    audio: JsonObject | None = None
    images: list[MadeImage] | None = None
    name: str | None = None


class ToolMessage(MessageBase, frozen=True, kw_only=True, tag="tool"):
    content: str | list[ToolPart]
    tool_call_id: str
    name: str | None = None


class FunctionMessage(MessageBase, frozen=True, kw_only=True, tag="function"):
    """The result of a legacy function call."""

    name: str
    content: str | None = None


Message: TypeAlias = (
    UserMessage
    | SystemMessage
    | DeveloperMessage
    | AssistantMessage
    | ToolMessage
    | FunctionMessage
)

_ROLES: dict[str, type[Message]] = {
    "system": SystemMessage,
    "developer": DeveloperMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
}


def decode_messages(
    raw: Any, param: ParamPath = ("messages",), *, strict: bool = False
) -> list[Message]:
    """Decode a request's messages from plain JSON. Raises `InvalidRequest` with the precise parameter.

    Lenient, as real clients require: nulls count as missing, a tool call may lack its `type`, and messages in the form
    of another server are converted (see `gateway.wire.usual_messages`). `strict` rejects those in the form of another
    server.
    """
    if not isinstance(raw, list):
        raise wrong_type(param, "an array of messages", raw)
    check_length(raw, param)
    return [_decode_message(each, (*param, index), strict) for index, each in enumerate(raw)]


def _decode_message(raw: Any, param: ParamPath, strict: bool) -> Message:
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    role = raw.get("role")
    if role is None:
        raise missing((*param, "role"))
    if not isinstance(role, str):
        raise wrong_type((*param, "role"), "a string", role)
    cls = _ROLES.get(role)
    if cls is None:
        raise not_among((*param, "role"), role, _ROLES)
    if cls is AssistantMessage:
        calls = raw.get("tool_calls")
        if isinstance(calls, list) and any(map(_is_untyped, calls)):
            raw = {**raw, "tool_calls": [_typed(call) for call in calls]}
        made = raw.get("images")
        if isinstance(made, list):
            check_length(made, (*param, "images"))
    beside = {**raw, "images": None} if cls is AssistantMessage else raw
    refuse_media_beside(beside, param, "from parts of 'content': image_url and file")
    content = raw.get("content")
    if type(content) is list:
        check_length(content, (*param, "content"))
    try:
        message: Message = convert(raw, cls, param)
    except InvalidRequest:
        if strict or (usual := usual_message(raw)) == raw:
            raise
        message = convert(usual, cls, param)
    return message


def unknown_message_member(raw: Any) -> ParamPath | None:
    """The path of the first member in `raw`, messages as plain JSON, that OpenAI's messages do not have; None if there
    is none.

    Members of answers, and members that OpenAI's SDK adds to answers, are accepted, so that an answer can be sent back.
    """
    for index, message in enumerate(raw if isinstance(raw, list) else ()):
        role = message.get("role") if isinstance(message, dict) else None
        cls = _ROLES.get(role) if isinstance(role, str) else None
        if cls is None:
            continue
        if cls is AssistantMessage:
            if message.get("images"):
                return ("messages", index, "images")
            message = _as_sent(message)
        if (place := unknown_member(message, cls, ("messages", index))) is not None:
            return place
    return None


def _as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """An assistant message without the members that only answers have, and those that OpenAI's SDK adds in `parse` and
    `stream`."""
    message = _without(message, _OF_ANSWERS)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [_call_as_sent(call) for call in calls]
    return message


def _call_as_sent(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    call = _without(call, _OF_CALLS)
    if isinstance(function := call.get("function"), dict):
        call["function"] = _without(function, _OF_FUNCTIONS)
    return call


def _without(value: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name not in names}


_OF_ANSWERS = frozenset({"annotations", "parsed"})
_OF_CALLS = frozenset({"index"})
_OF_FUNCTIONS = frozenset({"parsed_arguments"})


def _is_untyped(call: Any) -> bool:
    return isinstance(call, dict) and call.get("type") in (None, "")


def _typed(call: Any) -> Any:
    if not _is_untyped(call):
        return call
    return {**call, "type": "custom" if "custom" in call else "function"}
