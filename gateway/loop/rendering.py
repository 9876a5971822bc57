"""Making prompts without holding up everybody else's streams."""

from __future__ import annotations

import asyncio

from gateway.protocols import PromptRenderer, RenderedPrompt, Turn
from gateway.wire import items
from gateway.wire.content import text_of

IN_THREAD = 200_000
"""Characters of conversation beyond which rendering and tokenizing leave the event loop."""


async def render(renderer: PromptRenderer, turn: Turn, *, size: int) -> RenderedPrompt:
    """The prompt of `turn`. `size` is that of the request's body in bytes: what came with it, tools among them."""
    if size + _size_of(turn) > IN_THREAD:
        return await asyncio.to_thread(renderer.render, turn)
    return renderer.render(turn)


def _size_of(turn: Turn) -> int:
    """About how many characters the items have; those of the request's own body may be counted twice."""
    size = 0
    for item in turn.items:
        match item:
            case items.Message():
                size += len(item.text)
            case items.Reasoning(content=list(parts)):
                size += sum(len(part.text) for part in parts)
            case items.FunctionCallOutput() | items.CustomToolCallOutput():
                size += len(text_of(item.output))
            case items.FunctionCall():
                size += len(item.arguments)
            case items.CustomToolCall():
                size += len(item.input)
            case _:
                pass
    return size
