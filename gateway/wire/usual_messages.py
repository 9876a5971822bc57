"""Converts messages of Chat Completions in the form of other servers to the form of OpenAI's API.

Clients keep their histories in the form of the server that they were written for, and send them to every server. Other
forms are: parts of the Responses API, reasoning parts (Mistral's, Anthropic's, LangChain's), URLs of images as plain
strings, calls without arguments, and tools that return nothing.
"""

from __future__ import annotations

from typing import Any, Final

_TEXTS: Final = ("input_text", "output_text")
_REASONING: Final = ("thinking", "reasoning", "redacted_thinking")


def usual_message(raw: dict[str, Any]) -> dict[str, Any]:
    """Convert `raw`, one message as plain JSON, to OpenAI's parts, calls and contents. Unknown forms are not changed.
    Reasoning parts of an assistant message become its `reasoning_content`, unless it already has some. Encrypted
    reasoning is omitted."""
    role, content = raw.get("role"), raw.get("content")
    message = dict(raw)
    if isinstance(content, list):
        parts = content
        if role == "assistant":
            parts = [part for part in content if not _is_reasoning(part)]
            _keep_reasoning(message, [part for part in content if _is_reasoning(part)])
        message["content"] = [_part(part) for part in parts]
    elif content is None and role == "tool":
        message["content"] = ""
    if role == "assistant":
        if isinstance(calls := raw.get("tool_calls"), list):
            message["tool_calls"] = [_call(call) for call in calls]
        if isinstance(legacy := raw.get("function_call"), dict):
            message["function_call"] = _called(legacy)
    return message


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind, image = part.get("type"), part.get("image_url")
    if kind in _TEXTS:
        return {**part, "type": "text"}
    if image is not None and kind in ("image_url", "input_image"):
        if isinstance(image, str):
            image = {"url": image, "detail": part.get("detail")}
        return {**part, "type": "image_url", "image_url": image}
    if kind == "input_file" and part.get("file_url") is None:
        return {"type": "file", "file": part}
    return part


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _REASONING


def _keep_reasoning(message: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    if parts and not (message.get("reasoning_content") or message.get("reasoning")):
        message["reasoning_content"] = "\n".join(filter(None, map(_reasoning, parts))) or None


def _reasoning(part: dict[str, Any]) -> str:
    """The text of a reasoning part: text, or a list of parts with text."""
    for name in ("thinking", "reasoning", "text", "content"):
        said = part.get(name)
        if isinstance(said, str):
            return said
        if isinstance(said, list):
            texts = [each.get("text") for each in said if isinstance(each, dict)]
            return "".join(text for text in texts if isinstance(text, str))
    return ""


def _call(call: Any) -> Any:
    if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
        return {**call, "function": _called(function)}
    return call


def _called(function: dict[str, Any]) -> dict[str, Any]:
    return function if function.get("arguments") is not None else {**function, "arguments": ""}
