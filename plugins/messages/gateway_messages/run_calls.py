"""Calls of the server's tools that come back in a request, as the items of calls that the gateway has run.

What the client can see is enough to tell the model again what it has read, but for searches and pages: they come with that
sealed. Those of another server are told as far as they can be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.protocols import CallRecord
from gateway.wire import items
from gateway_messages import blocks


class RunCall(Struct, frozen=True):
    """A call and its answer."""

    items: Sequence[items.Item]
    record: CallRecord | None = None
    """What the model has read, where the items do not show it."""


def run_call(
    call: blocks.ServedBlock, answer: blocks.AnswerBlock, unseal: Callable[[str], str | None]
) -> RunCall:
    """`answer` is to `call`, whatever the client has made of the two."""
    if isinstance(call, blocks.McpToolUseBlock) or isinstance(answer, blocks.McpAnswerBlock):
        return _mcp(call, answer)
    match answer:
        case blocks.WebSearchAnswerBlock() | blocks.WebFetchAnswerBlock():
            return _web(call, answer, unseal)
        case blocks.CodeAnswerBlock():
            return _code(call, answer)
        case _:
            return _shell(call, answer)


def _web(
    call: blocks.ServerToolUseBlock,
    answer: blocks.WebSearchAnswerBlock | blocks.WebFetchAnswerBlock,
    unseal: Callable[[str], str | None],
) -> RunCall:
    found = _objects(answer.content)
    record = _record(found, unseal)
    if record is None:
        told = "\n\n".join(filter(None, map(_readable, found))) or "No results."
        record = CallRecord(name=call.name, arguments=_json(call.input), result=told)
    urls = [url for each in found if (url := _text(each, "url"))]
    if isinstance(answer, blocks.WebFetchAnswerBlock):
        asked = call.input.get("url")
        url = urls[0] if urls else asked if isinstance(asked, str) else ""
        action: dict[str, Any] = {"type": "open_page", "url": url}
    else:
        query = call.input.get("query")
        query = query if isinstance(query, str) else ""
        sources = [{"type": "url", "url": url} for url in urls]
        action = {"type": "search", "query": query, "queries": [query], "sources": sources}
    return RunCall([items.web_search_call(call.id, "completed", action)], record)


def _code(call: blocks.ServerToolUseBlock, answer: blocks.CodeAnswerBlock) -> RunCall:
    code = call.input.get("code")
    outputs = [{"type": "logs", "logs": _output(answer.content)}]
    return RunCall(
        [
            items.code_interpreter_call(
                call.id, "completed", code if isinstance(code, str) else "", "", outputs
            )
        ]
    )


def _shell(call: blocks.ServerToolUseBlock, answer: blocks.AnswerBlock) -> RunCall:
    command = call.input.get("command")
    ran = answer.content if isinstance(answer.content, dict) else {}
    code = ran.get("return_code")
    output = items.ShellOutput(
        stdout=_text(ran, "stdout"),
        stderr=_text(ran, "stderr") or _text(ran, "error_code"),
        outcome=items.ShellExit(exit_code=code if isinstance(code, int) else 0),
    )
    return RunCall(
        [
            items.ShellCall(
                id=call.id,
                call_id=call.id,
                action=items.ShellAction(
                    commands=[command if isinstance(command, str) else _json(call.input)]
                ),
            ),
            items.ShellCallOutput(call_id=call.id, output=[output]),
        ]
    )


def _mcp(call: blocks.ServedBlock, answer: blocks.AnswerBlock) -> RunCall:
    content = answer.content
    text = content if isinstance(content, str) else "\n".join(map(_readable, _objects(content)))
    failed = isinstance(answer, blocks.McpAnswerBlock) and bool(answer.is_error)
    return RunCall(
        [
            items.McpCall(
                id=call.id,
                status="failed" if failed else "completed",
                server_label=call.server_name if isinstance(call, blocks.McpToolUseBlock) else "",
                name=call.name,
                arguments=_json(call.input),
                output=None if failed else text,
                error=text if failed else None,
            )
        ]
    )


def _record(
    found: Sequence[dict[str, Any]], unseal: Callable[[str], str | None]
) -> CallRecord | None:
    for each in found:
        opened = unseal(_text(each, "encrypted_content"))
        if opened:
            try:
                return msgspec.json.decode(opened, type=CallRecord)
            except msgspec.DecodeError:
                return None
    return None


def _objects(content: Any) -> list[dict[str, Any]]:
    listed = content if isinstance(content, list) else [content]
    return [each for each in listed if isinstance(each, dict)]


def _readable(each: dict[str, Any]) -> str:
    """What can be read of a result: a text, a page with its text, a page that was found, an error."""
    inner = each.get("content")
    source = inner.get("source") if isinstance(inner, dict) else None
    told = (
        _text(each, "text"),
        _text(each, "title"),
        _text(each, "url"),
        _text(source, "data") if isinstance(source, dict) else "",
        _text(each, "error_code"),
    )
    return "\n".join(text for text in told if text)


def _output(content: Any) -> str:
    ran = content if isinstance(content, dict) else {}
    told = (_text(ran, "stdout"), _text(ran, "stderr"), _text(ran, "error_code"))
    return "\n".join(text for text in told if text)


def _text(of: dict[str, Any], key: str) -> str:
    value = of.get(key)
    return value if isinstance(value, str) else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
