"""Converts entries to the messages of one template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from gateway.sdk import InvalidRequest, ParamPath
from gateway.sdk.wire import is_too_deep
from gateway_chat_template.calls_as_text import WriteCalls, write_as_json
from gateway_chat_template.conversation import (
    CallEntry,
    Entry,
    MessageEntry,
    MessageMedia,
    OutputEntry,
    ResultEntry,
)
from gateway_chat_template.features import Features

Message: TypeAlias = dict[str, Any]

MEDIA = "media"
"""Key of a content part that stands for an image or sound."""
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def messages_of(
    entries: Sequence[Entry],
    instructions: str | None,
    features: Features,
    write_calls: WriteCalls = write_as_json,
) -> tuple[list[Message], list[MessageMedia]]:
    """The messages, and their images and sounds in order. `write_calls` writes calls as text, for templates that show none.

    An image is a content part with the key `MEDIA`, whose value is its index, in a list of parts.

    Raises `InvalidRequest`, naming the item, for what the template does not support.
    """
    if instructions:
        entries = [MessageEntry("system", [instructions], ("instructions",)), *entries]
    entries = _arranged(entries, features)
    if not features.repeats_assistant:
        entries = _with_joined_outputs(entries)
    as_text = write_calls if features.tools else None
    media: list[MessageMedia] = []
    messages: list[Message] = []
    for index, entry in enumerate(entries):
        match entry:
            case MessageEntry():
                content = _content(entry, features, media)
                messages.append({"role": entry.role, "content": content})
            case OutputEntry():
                results = _results_after(entries, index) if entry.calls else ()
                if entry.calls and not features.calls and as_text is not None:
                    messages.append(_with_calls_as_text(entry, features, as_text))
                    continue
                messages += _output_messages(entry, results, features)
            case ResultEntry():
                if not features.calls:
                    if as_text is None:
                        raise _no_calls(entry.param)
                    result = _result if features.results else _result_of_user
                    messages.append(result(entry, features))
                elif features.parallel_calls or not _is_already_placed(entries, index):
                    messages.append(_result(entry, features))
    return messages if features.repeats else _alternating(messages), media


def _arranged(entries: Sequence[Entry], features: Features) -> list[Entry]:
    """The entries with system and developer messages moved, and their roles renamed, as the template requires."""
    head: list[MessageEntry] = []
    rest: list[Entry] = []
    for entry in entries:
        if not isinstance(entry, MessageEntry) or entry.role == "user":
            rest.append(entry)
            continue
        if entry.role == "developer" and not features.developer:
            entry = MessageEntry("system", entry.content, entry.param)
        late = features.late_system if entry.role == "system" else features.late_developer
        if rest and late:
            rest.append(entry)
        else:
            head.append(entry)
    if not head:
        return rest
    if len(head) > 1 and _shows_each(head, features):
        return [*head, *rest]
    # Merge the leading messages, because many templates read only the first.
    joined = head[0] if len(head) == 1 else _joined(head)
    if features.system or (joined.role == "developer" and features.developer):
        return [joined, *rest]
    if not any(any(entry.content) for entry in head):
        return rest
    for index, entry in enumerate(rest):
        if isinstance(entry, MessageEntry):
            content = _run_on(_with_joined_texts(joined.content), "\n\n", entry.content)
            rest[index] = MessageEntry("user", content, entry.param)
            return rest
    return [MessageEntry("user", joined.content, joined.param), *rest]


def _shows_each(head: Sequence[MessageEntry], features: Features) -> bool:
    """Whether the template shows several leading messages, so that they need not be merged."""
    roles = [entry.role for entry in head]
    return all(pair in features.leading for pair in pairwise(roles))


def _with_joined_outputs(entries: Sequence[Entry]) -> list[Entry]:
    """Consecutive outputs as one, for templates that do not show each as a message."""
    joined: list[Entry] = []
    for entry in entries:
        last = joined[-1] if joined else None
        if isinstance(last, OutputEntry) and isinstance(entry, OutputEntry):
            joined[-1] = OutputEntry(
                [*last.reasoning, *entry.reasoning],
                [*last.text, *entry.text],
                [*last.calls, *entry.calls],
                last.param,
            )
        else:
            joined.append(entry)
    return joined


def _joined(entries: Sequence[MessageEntry]) -> MessageEntry:
    content: list[str | MessageMedia] = []
    for index, entry in enumerate(entries):
        content = _run_on(content, "\n\n" if index else "", _with_joined_texts(entry.content))
    return MessageEntry(entries[0].role, content, entries[0].param)


def _run_on(
    first: Sequence[str | MessageMedia], between: str, second: Sequence[str | MessageMedia]
) -> list[str | MessageMedia]:
    """Both contents with `between` between them, which belongs to the texts around it."""
    before = [first[-1]] if first and isinstance(first[-1], str) else []
    after = [second[0]] if second and isinstance(second[0], str) else []
    text = "".join([*before, between, *after])
    return [*first[: len(first) - len(before)], *([text] if text else []), *second[len(after) :]]


def _with_joined_texts(content: Sequence[str | MessageMedia]) -> list[str | MessageMedia]:
    """The content with texts that follow each other as lines of one."""
    joined: list[str | MessageMedia] = []
    for part in content:
        last = joined[-1] if joined else None
        if isinstance(part, str) and isinstance(last, str):
            joined[-1] = f"{last}\n{part}"
        else:
            joined.append(part)
    return joined


def _content(entry: MessageEntry, features: Features, media: list[MessageMedia]) -> Any:
    """Content in the template's form: a list of parts if there are media, or several texts that the template shows in a list;
    else one text, with a line for each part."""
    if len(entry.content) == 1 and isinstance(only := entry.content[0], str):
        return _text(only, features)
    texts = [part for part in entry.content if isinstance(part, str)]
    if len(texts) == len(entry.content):
        return _texts(texts, entry.role, features)
    parts: list[dict[str, Any]] = []
    in_parts = entry.role in features.several_parts
    for part in entry.content if in_parts else _with_joined_texts(entry.content):
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
        else:
            parts.append({MEDIA: len(media)})
            media.append(part)
    return parts


def _texts(texts: Sequence[str], role: str, features: Features) -> Any:
    """Texts that were sent as parts of one message."""
    if len(texts) > 1 and role in features.several_parts:
        return [{"type": "text", "text": text} for text in texts]
    return _text("\n".join(texts), features)


def _text_of(done: OutputEntry) -> str:
    """All text of an output."""
    return "\n\n".join(filter(None, map("\n".join, done.text)))


def _text(text: str, features: Features) -> Any:
    return text if features.text else [{"type": "text", "text": text}]


def _results_after(entries: Sequence[Entry], index: int) -> list[ResultEntry]:
    results = []
    for entry in entries[index + 1 :]:
        if not isinstance(entry, ResultEntry):
            break
        results.append(entry)
    return results


def _is_already_placed(entries: Sequence[Entry], index: int) -> bool:
    """Whether `_output_messages` has already placed the result at `index` next to its call."""
    result = entries[index]
    while index and isinstance(entries[index], ResultEntry):
        index -= 1
    before = entries[index]
    return (
        isinstance(before, OutputEntry)
        and isinstance(result, ResultEntry)
        and len(before.calls) > 1
        and any(call.call_id == result.call_id for call in before.calls)
    )


def _with_calls_as_text(done: OutputEntry, features: Features, write_calls: WriteCalls) -> Message:
    """Model output as one message whose content has the calls as the model writes them."""
    text = _text_of(done)
    written = write_calls(text, [(call.name, _arguments_text(call)) for call in done.calls])
    message: Message = {"role": "assistant", "content": _text(written, features)}
    if done.reasoning:
        reasoning = "\n\n".join(done.reasoning)
        message.update((key, reasoning) for key in features.reasoning_keys)
    return message


def _arguments_text(call: CallEntry) -> str:
    return json.dumps(_arguments(call), ensure_ascii=False)


def _arguments(call: CallEntry) -> dict[str, Any]:
    """The arguments as an object. Those that are none, as of an incomplete call, are its only member."""
    written = call.arguments.strip() or "{}"
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        return {"arguments": written}
    if is_too_deep(arguments):
        return {"arguments": written}
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def _output_messages(
    done: OutputEntry, results: Sequence[ResultEntry], features: Features
) -> list[Message]:
    """Model output as one message, or as several if the template requires it."""
    text = _text_of(done)
    first: Message = {"role": "assistant", "content": _text(text, features)}
    if done.reasoning:
        reasoning = "\n\n".join(done.reasoning)
        first.update((key, reasoning) for key in features.reasoning_keys)
    if not done.calls:
        if len(done.text) == 1:
            first["content"] = _texts(done.text[0], "assistant", features)
        return [first]
    if not features.calls:
        raise _no_calls(done.param)
    messages = [first]
    if not text:
        first["content"] = features.call_content
    elif features.text_and_calls == "separate":
        messages.append({"role": "assistant", "content": features.call_content})
        if features.reasoning_beside_calls:
            for key in features.reasoning_keys:
                if key in first:
                    messages[-1][key] = first.pop(key)
    calls = [_call(call, features) for call in done.calls]
    if features.parallel_calls or len(calls) == 1:
        messages[-1]["tool_calls"] = calls
        return messages
    for index, call in enumerate(done.calls):
        if index:
            messages.append({"role": "assistant", "content": features.call_content})
        messages[-1]["tool_calls"] = [calls[index]]
        messages += [_result(entry, features) for entry in results if entry.call_id == call.call_id]
    return messages


def _call(call: CallEntry, features: Features) -> dict[str, Any]:
    arguments: Any = call.arguments.strip() or "{}"
    if features.arguments == "object":
        arguments = _arguments(call)
    return {
        "id": _call_id(call.call_id, features),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _result(result: ResultEntry, features: Features) -> Message:
    return {
        "role": "tool",
        "content": _text(result.text, features),
        "tool_call_id": _call_id(result.call_id, features),
        "name": result.name,
    }


def _result_of_user(result: ResultEntry, features: Features) -> Message:
    """A result for a template that does not show the role `tool`."""
    name = f" of {result.name}" if result.name else ""
    text = f"Result{name}:\n{result.text}"
    return {"role": "user", "content": _text(text, features)}


def _call_id(call_id: str, features: Features) -> str:
    if not features.short_call_ids or (
        len(call_id) == 9 and call_id.isascii() and call_id.isalnum()
    ):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8], "big")
    digits = []
    for _ in range(9):
        number, digit = divmod(number, 36)
        digits.append(_BASE36[digit])
    return "".join(digits)


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """Merge consecutive messages of one role if the template requires alternating roles."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last["role"] == message["role"] != "tool"
            and "tool_calls" not in last
        ):
            content = _merged(last["content"], message["content"])
            merged[-1] = {**last, **message, "content": content}
        else:
            merged.append(message)
    return merged


def _merged(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return first + ("\n\n" if first and second else "") + second
    one, other = _as_parts(first), _as_parts(second)
    if not (one and other and "text" in one[-1] and "text" in other[0]):
        return [*one, {"type": "text", "text": "\n\n"}, *other]
    text = f"{one[-1]['text']}\n\n{other[0]['text']}"
    return [*one[:-1], {"type": "text", "text": text}, *other[1:]]


def _as_parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content or ""}]


def _no_calls(param: ParamPath) -> InvalidRequest:
    return InvalidRequest(
        "This model's chat template has no place for tool calls and their results.", param=param
    )
