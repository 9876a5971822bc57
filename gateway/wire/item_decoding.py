"""Decoding the items of a request."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.wire.content import InputText, OutputText
from gateway.wire.decoding import convert, one_of
from gateway.wire.field_errors import (
    check_length,
    missing,
    not_among,
    refuse_media_beside,
    shortened,
    wrong_type,
)
from gateway.wire.items import (
    ITEMS,
    CustomToolCallOutput,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)

_INPUT_PARTS = ("input_text", "input_image", "input_file", "input_audio")
_OUTPUT_PARTS = ("output_text", "refusal")
_PARTS: dict[str, tuple[str, ...]] = {
    "user": _INPUT_PARTS,
    "system": _INPUT_PARTS,
    "developer": _INPUT_PARTS,
    "assistant": _OUTPUT_PARTS,
}
# Equivalent part types, which are renamed: `text` is from Chat Completions, and several SDKs send earlier assistant
# messages back as `input_text`, which EasyInputMessage allows.
_TEXTS = {"input_text": InputText, "output_text": OutputText}
_SAME_PART = {
    ("user", "text"): "input_text",
    ("system", "text"): "input_text",
    ("developer", "text"): "input_text",
    ("assistant", "text"): "output_text",
    ("assistant", "input_text"): "output_text",
}


_CONTENT = "from parts of 'content': input_image and input_file"
_PLAIN_TEXTS = ("text", "output_text", "input_text")
_OUTPUTS = frozenset({FunctionCallOutput, CustomToolCallOutput})


def decode_items(raw: Any, param: ParamPath = ("input",)) -> list[Item]:
    """Decode a request's items from plain JSON. A string is a single user message.

    Lenient, as real clients require: a message or a reference may lack `type`; ids, statuses and annotations may be
    missing or null; content may be a string. Raises `InvalidRequest` with the precise parameter. Linear.
    """
    if isinstance(raw, str):
        return [Message(role="user", content=[InputText(text=raw)])]
    if not isinstance(raw, list):
        raise wrong_type(param, "one of a string or array of input items", raw)
    check_length(raw, param)
    decoded: list[Item] = []
    for index, item in enumerate(raw):
        try:
            cls = ITEMS[item["type"]] if "type" in item else Message
            decoded.append(
                _message(item, param, index) if cls is Message else msgspec.convert(item, cls)
            )
            if cls in _OUTPUTS:
                _check_output(item, (*param, index), cls)
        except (KeyError, TypeError, msgspec.ValidationError):
            decoded.append(decode_item(item, (*param, index)))
    return decoded


def decode_item(raw: Any, param: ParamPath) -> Item:
    """Decode one item; see `decode_items`."""
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    if raw.get("type") is None:
        if "role" in raw:
            raw = {**raw, "type": "message"}
        elif isinstance(raw.get("id"), str):
            raw = {"type": "item_reference", "id": raw["id"]}
    cls = one_of(ITEMS, raw, param)
    if cls is Message:
        return convert(_normal_message(raw, param), Message, param)
    if cls in _OUTPUTS:
        _check_output(raw, param, cls)
    if cls is Reasoning:
        raw = _normal_reasoning(raw)
    return convert(raw, cls, param)


def _normal_reasoning(raw: dict[str, Any]) -> dict[str, Any]:
    """Convert reasoning to OpenAI's part types. Other servers write `text`, or a string without parts."""
    return {
        **raw,
        **{
            name: _normal_texts(raw[name], kind)
            for name, kind in (("content", "reasoning_text"), ("summary", "summary_text"))
            if raw.get(name) is not None
        },
    }


def _normal_texts(value: Any, kind: str) -> Any:
    if isinstance(value, str):
        return [{"type": kind, "text": value}]
    if not isinstance(value, list):
        return value
    return [
        {**part, "type": kind}
        if isinstance(part, dict) and part.get("type") in (None, *_PLAIN_TEXTS)
        else part
        for part in value
    ]


def _check_output(raw: dict[str, Any], param: ParamPath, cls: type[Item]) -> None:
    """Raise for an output that names neither its call nor its tool, and for images that are separate from the
    output."""
    refuse_media_beside(raw, param, "from parts of 'output': input_image and input_file")
    if cls is FunctionCallOutput and raw.get("call_id") is None and not raw.get("name"):
        raise missing(
            (*param, "call_id"),
            "Send the id of the call that this answers, or the name of the tool if there was none.",
        )


def _message(raw: dict[str, Any], param: ParamPath, index: int) -> Message:
    """Fast path for the most common item. Raises for anything unusual, which is then decoded in the general way."""
    content = raw["content"]
    allowed = _PARTS[raw["role"]]
    if type(content) is str:
        if len(raw) == 2 + ("type" in raw):
            return Message(role=raw["role"], content=[_TEXTS[allowed[0]](text=content)])
        raw = {**raw, "content": [{"type": allowed[0], "text": content}]}
        refuse_media_beside(raw, (*param, index), _CONTENT)
    else:
        refuse_media_beside(raw, (*param, index), _CONTENT)
        check_length(content, (*param, index, "content"))
        for part in content:
            if part["type"] not in allowed:
                return convert(_normal_message(raw, (*param, index)), Message, (*param, index))
    return msgspec.convert(raw if "type" in raw else {**raw, "type": "message"}, Message)


def _normal_message(raw: dict[str, Any], param: ParamPath) -> dict[str, Any]:
    """Convert `content` to a list of parts of the types that the message's role allows."""
    role = raw.get("role")
    if role is None:
        raise missing((*param, "role"))
    if not isinstance(role, str):
        raise wrong_type((*param, "role"), "a string", role)
    if role == "tool":
        raise InvalidRequest(
            "Invalid value for role: 'tool'. A tool's result is an item of its own here: "
            '{"type": "function_call_output", "call_id": …, "output": …}.',
            param=(*param, "role"),
            code="invalid_value",
        )
    allowed = _PARTS.get(role)
    if allowed is None:
        raise not_among((*param, "role"), role, list(_PARTS))
    refuse_media_beside(raw, param, _CONTENT)
    content = raw.get("content")
    if content is None:
        raise missing((*param, "content"))
    if isinstance(content, str):
        return {**raw, "content": [{"type": allowed[0], "text": content}]}
    if not isinstance(content, list):
        raise wrong_type((*param, "content"), "one of an array of objects or string", content)
    check_length(content, (*param, "content"))
    parts = [
        _normal_part(part, role, allowed, (*param, "content", index))
        for index, part in enumerate(content)
    ]
    return {**raw, "content": parts}


def _normal_part(raw: Any, role: str, allowed: tuple[str, ...], param: ParamPath) -> Any:
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    kind = raw.get("type")
    if kind is None:
        raise missing((*param, "type"))
    if not isinstance(kind, str):
        raise wrong_type((*param, "type"), "a string", kind)
    if kind in allowed:
        return raw
    same = _SAME_PART.get((role, kind))
    if same is None:
        raise not_among((*param, "type"), shortened(kind), list(allowed))
    return {**raw, "type": same}
