"""Where prompts are made: long ones beside the event loop, whatever makes them long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gateway.generation.rendering import IN_THREAD, render
from gateway.plugins.protocols import CallRecord, RenderedPrompt, TokensPrompt, ToolDefinition, Turn
from gateway.wire import items
from gateway.wire.content import InputText, ReasoningText

LONG = "x" * (IN_THREAD + 1)
OF_ALL_KINDS: list[items.Item] = [
    items.Message(role="user", content=[InputText(text=LONG)]),
    items.Reasoning(content=[ReasoningText(text=LONG)]),
    items.FunctionCall(call_id="c", name="f", arguments=LONG),
    items.FunctionCallOutput(call_id="c", output=LONG),
    items.FunctionCallOutput(call_id="c", output=[InputText(text=LONG)]),
    items.CustomToolCall(call_id="c", name="f", input=LONG),
    items.CustomToolCallOutput(call_id="c", output=LONG),
    items.McpCall(server_label="s", name="f", arguments="{}", output=LONG),
]


class Renderer:
    """Tells where it was asked."""

    def __init__(self) -> None:
        self.in_loop: bool | None = None

    def render(self, turn: Turn) -> RenderedPrompt:
        self.in_loop = threading.current_thread() is threading.main_thread()
        return RenderedPrompt(prompt=TokensPrompt(token_ids=[1]))


def rendered_in_loop(turn: Turn, size: int = 0) -> bool | None:
    renderer = Renderer()
    asyncio.run(render(renderer, turn, size=size))
    return renderer.in_loop


@pytest.mark.parametrize("item", OF_ALL_KINDS, ids=lambda item: type(item).__name__)
def test_a_long_item_of_the_history_is_rendered_beside_the_loop(item: items.Item) -> None:
    assert rendered_in_loop(Turn(items=[item])) is False


def test_long_results_of_the_gateways_tools_are_rendered_beside_the_loop() -> None:
    record = CallRecord(name="f", arguments="{}", result=LONG)
    assert rendered_in_loop(Turn(items=[], results={"c": record})) is False


@pytest.mark.parametrize(
    "tool",
    [
        ToolDefinition(name="f", description=LONG),
        ToolDefinition(name="f", parameters={"type": "object", "description": LONG}),
    ],
)
def test_long_tools_of_a_server_are_rendered_beside_the_loop(tool: ToolDefinition) -> None:
    assert rendered_in_loop(Turn(items=[], tools=[tool])) is False


def test_a_long_body_is_rendered_beside_the_loop() -> None:
    assert rendered_in_loop(Turn(items=[]), IN_THREAD + 1) is False


def test_a_short_conversation_is_rendered_at_once() -> None:
    short = items.Message(role="user", content=[InputText(text="hello")])
    assert rendered_in_loop(Turn(items=[short] * 100), 1000) is True


@pytest.mark.parametrize(
    "item",
    [
        items.Message(role="user", content=[InputText(text="a")]),
        items.FunctionCall(call_id="c", name="f", arguments="{}"),
        items.FunctionCallOutput(call_id="c", output="a"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_many_short_items_of_the_history_are_rendered_beside_the_loop(item: items.Item) -> None:
    assert rendered_in_loop(Turn(items=[item] * 1000)) is False


def test_many_short_parts_are_rendered_beside_the_loop() -> None:
    message = items.Message(role="user", content=[InputText(text="a")] * 10_000)
    assert rendered_in_loop(Turn(items=[message])) is False
