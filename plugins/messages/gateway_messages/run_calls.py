"""Converts server tool calls in a request to the items of calls that the gateway has run.

The visible content suffices to reconstruct what the model has read, except for searches and pages: these carry it
encrypted. Results of another server are converted as far as they are readable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.sdk import CallRecord
from gateway.sdk.wire import items
from gateway_messages import blocks


class RunCall(Struct, frozen=True):
    """A call and its answer."""

    items: Sequence[items.Item]
    record: CallRecord | None = None
    """What the model has read, if the items do not contain it."""


def run_call(
    call: blocks.ServedBlock, answer: blocks.AnswerBlock, unseal: Callable[[str], str | None]
) -> RunCall:
    """Convert a call and its `answer`, even if the client has modified them."""
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
        output = "\n\n".join(filter(None, map(_readable, found))) or "No results."
        record = CallRecord(name=call.name, arguments=_json(call.input), result=output)
    urls = [url for each in found if (url := _text(each, "url"))]
    if isinstance(answer, blocks.WebFetchAnswerBlock):
        asked = call.input.get("url")
        url = urls[0] if urls else asked if isinstance(asked, str) else ""
        action: items.WebSearchAction = items.OpenPageAction(url=url)
    else:
        query = call.input.get("query")
        query = query if isinstance(query, str) else ""
        sources = [items.UrlSource(url=url) for url in urls]
        action = items.SearchAction(query=query, queries=[query], sources=sources)
    return RunCall([items.WebSearchCall(id=call.id, action=action)], record)


def _code(call: blocks.ServerToolUseBlock, answer: blocks.CodeAnswerBlock) -> RunCall:
    code = call.input.get("code")
    item = items.CodeInterpreterCall(
        id=call.id,
        code=code if isinstance(code, str) else "",
        container_id="",
        outputs=[items.InterpreterLogs(logs=_output(answer.content))],
    )
    return RunCall([item])


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
    """The readable part of a result: a text, a page's text, a search hit, or an error."""
    inner = each.get("content")
    source = inner.get("source") if isinstance(inner, dict) else None
    output = (
        _text(each, "text"),
        _text(each, "title"),
        _text(each, "url"),
        _text(source, "data") if isinstance(source, dict) else "",
        _text(each, "error_code"),
    )
    return "\n".join(text for text in output if text)


def _output(content: Any) -> str:
    ran = content if isinstance(content, dict) else {}
    output = (_text(ran, "stdout"), _text(ran, "stderr"), _text(ran, "error_code"))
    return "\n".join(text for text in output if text)


def _text(of: dict[str, Any], key: str) -> str:
    value = of.get(key)
    return value if isinstance(value, str) else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
