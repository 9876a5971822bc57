"""Rendering prompts without blocking the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from gateway.errors import renamed_params
from gateway.media.part_resolver import PartResolver
from gateway.protocols import DatedRenderer, IsolatingRenderer, PromptRenderer, RenderedPrompt, Turn
from gateway.wire import items
from gateway.wire.content import TEXTS, text_of

IN_THREAD: Final = 65_536
"""Size, in characters, above which rendering and tokenizing run in a thread: about ten milliseconds."""
_ITEM: Final = 128
"""Characters that are rendered in about the time that an item takes beside its text."""
_PART: Final = 16
"""The same for a part of a message."""


def dated(renderer: PromptRenderer, turn: Turn, at: float) -> Turn:
    """`turn` with the date that the renderer gives at the Unix time `at`, unless it has one."""
    if turn.today is not None or not isinstance(renderer, DatedRenderer):
        return turn
    today = renderer.date_at(at)
    return turn if today is None else msgspec.structs.replace(turn, today=today)


async def render_parts(
    renderer: PromptRenderer, turn: Turn, parts: PartResolver | None, *, size: int
) -> tuple[Turn, RenderedPrompt]:
    """Render `turn` with its images, sounds and documents, and today's date if it has none. Returns also the turn that was
    rendered.

    Errors name the parts of `turn`. For `size` see `render`.
    """
    turn = dated(renderer, turn, time.time())
    length = None if size > IN_THREAD else _text_length(turn)
    if parts is None or length is not None:
        return turn, await render(renderer, turn, size=size, length=length)
    shown = await parts.resolve(turn)
    if shown.turn is turn:
        return turn, await render(renderer, turn, size=size)
    with renamed_params(shown.sent):
        rendered = await render(renderer, shown.turn, size=size)
    return shown.turn, shown.with_sent_params(rendered)


async def render(
    renderer: PromptRenderer, turn: Turn, *, size: int, length: int | None = None
) -> RenderedPrompt:
    """Render `turn`. `size` is the size of the request body in bytes, including its tools. `length` is that of the conversation,
    if it is known, as `_text_length` counts it."""
    if turn.chat_template is not None and isinstance(renderer, IsolatingRenderer):
        return await renderer.render_isolated(turn)
    if size > IN_THREAD or size + (_size_of(turn) if length is None else length) > IN_THREAD:
        return await asyncio.to_thread(renderer.render, turn)
    return renderer.render(turn)


def _text_length(turn: Turn) -> int | None:
    """Number of characters of a turn whose items are all messages of text, which have no images, sounds or documents; items and
    parts count too. None for other turns."""
    if turn.results or turn.tools:
        return None
    length = _ITEM * len(turn.items)
    for item in turn.items:
        if type(item) is not items.Message:
            return None
        length += _PART * len(item.content)
        for said in item.content:
            if not isinstance(said, TEXTS):
                return None
            length += len(said.text)
    return length


def _size_of(turn: Turn) -> int:
    """Approximate number of characters of the items, their results and the tools, including the gateway's tools, and what the
    items and parts count. Content of the request body may be counted twice."""
    size = _ITEM * len(turn.items)
    for record in turn.results.values():
        size += len(record.result)
    for tool in turn.tools:
        size += len(tool.description or "")
        size += len(msgspec.json.encode(tool.parameters)) if tool.parameters else 0
    for item in turn.items:
        if size > IN_THREAD:
            break
        if type(item) is items.Message:  # as most are
            size += _PART * len(item.content)
            for said in item.content:
                if isinstance(said, TEXTS):
                    size += len(said.text)
            continue
        match item:
            case items.Reasoning(content=list(parts)):
                size += sum(len(part.text) for part in parts)
            case items.FunctionCallOutput() | items.CustomToolCallOutput():
                size += len(text_of(item.output))
            case items.FunctionCall():
                size += len(item.arguments)
            case items.CustomToolCall():
                size += len(item.input)
            case _:
                size += len(msgspec.json.encode(item))
    return size
