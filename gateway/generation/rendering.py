"""Rendering prompts without blocking the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from gateway.base.errors import renamed_params
from gateway.media.part_resolver import PartResolver
from gateway.plugins.protocols import (
    DatedRenderer,
    IsolatingRenderer,
    PromptRenderer,
    RenderedPrompt,
    Turn,
)
from gateway.wire import items
from gateway.wire.content import TEXTS, text_of

IN_THREAD: Final = 65_536
"""Size in characters above which rendering and tokenizing run in a thread. They take about ten milliseconds at this
size."""
_ITEM: Final = 128
"""Number of characters whose rendering takes about as long as the overhead of one item."""
_PART: Final = 16
"""The same for one part of a message."""


def dated(renderer: PromptRenderer, turn: Turn, at: float) -> Turn:
    """Return `turn` with the renderer's date for the Unix time `at`, unless it already has a date."""
    if turn.today is not None or not isinstance(renderer, DatedRenderer):
        return turn
    today = renderer.date_at(at)
    return turn if today is None else msgspec.structs.replace(turn, today=today)


async def render_parts(
    renderer: PromptRenderer, turn: Turn, parts: PartResolver | None, *, size: int
) -> tuple[Turn, RenderedPrompt]:
    """Render `turn` with its images, sounds and documents, and today's date if it has none. Returns the turn that was
    rendered, and the prompt.

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
    """Render `turn`, in a thread if it is large. `size` is the size of the request body in bytes, including its tools.
    `length` is the length of the conversation as counted by `_text_length`, if it is known."""
    if turn.chat_template is not None and isinstance(renderer, IsolatingRenderer):
        return await renderer.render_isolated(turn)
    if size > IN_THREAD or size + (_size_of(turn) if length is None else length) > IN_THREAD:
        return await asyncio.to_thread(renderer.render, turn)
    return renderer.render(turn)


def _text_length(turn: Turn) -> int | None:
    """Return the number of characters of a turn that consists of text messages only, plus the overhead of items and
    parts. None for other turns, which may contain images, sounds or documents."""
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
    """Return the approximate number of characters of the items, their results and all tools, including the gateway's,
    plus the overhead of items and parts. Content of the request body may be counted twice."""
    size = _ITEM * len(turn.items)
    for record in turn.results.values():
        size += len(record.result)
    for tool in turn.tools:
        size += len(tool.description or "")
        size += len(msgspec.json.encode(tool.parameters)) if tool.parameters else 0
    for item in turn.items:
        if size > IN_THREAD:
            break
        if type(item) is items.Message:  # the common case
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
