from __future__ import annotations

import asyncio
import os
import threading
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from gateway.base.errors import ConfigurationError
from gateway.plugins.protocols import (
    ToolCall,
    ToolResult,
)
from gateway.tools.functions import FunctionServer, PythonTool


async def weather(
    city: Annotated[str, Meta(description="Which city")], unit: Literal["C", "F"] = "C"
) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "unit": unit}


def shout(text: str) -> str:
    return text.upper()


def broken() -> str:
    raise ValueError("no luck")


def call(function: Any, **arguments: Any) -> ToolResult:
    return asyncio.run(PythonTool(function, time_limit=1).call(arguments))


def test_the_docstring_and_the_signature_are_what_the_model_is_told() -> None:
    definition = PythonTool(weather, time_limit=1).server_tool.definition
    assert definition.description == "The weather in a city."
    assert definition.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Which city"},
            "unit": {"enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_results_are_text_or_json() -> None:
    assert call(weather, city="Oslo").text == '{"city":"Oslo","unit":"C"}'
    assert call(shout, text="hi").text == "HI"


@pytest.mark.parametrize(
    "arguments", [{}, {"city": 3}, {"city": "x", "unit": "K"}, {"city": "x", "more": 1}]
)
def test_wrong_arguments_are_told_to_the_model(arguments: dict[str, Any]) -> None:
    result = call(weather, **arguments)
    assert result.failed
    assert result.text.startswith("Wrong arguments: ")


def test_an_unknown_tool_is_a_failed_result() -> None:
    assert asyncio.run(FunctionServer("x", []).call(ToolCall("nothing"))).failed


def test_a_function_without_types_is_refused() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        return x

    with pytest.raises(ConfigurationError, match="annotate it"):
        PythonTool(untyped, time_limit=1)


async def hang_everywhere(function: Any, calls: int) -> bool:
    """Whether threads of the event loop are free while `calls` calls hang."""
    tool = PythonTool(function, time_limit=60)
    running = [asyncio.create_task(tool.call({})) for _ in range(calls)]
    await asyncio.sleep(0)
    try:
        return await asyncio.wait_for(asyncio.to_thread(lambda: True), 60)
    finally:
        for each in running:
            each.cancel()


def test_functions_that_hang_leave_the_event_loops_threads_free() -> None:
    """Large requests are read in those."""
    over = threading.Event()

    def hang() -> str:
        over.wait()
        return ""

    loop_threads = min(32, (os.cpu_count() or 1) + 4)
    try:
        assert asyncio.run(hang_everywhere(hang, loop_threads))
    finally:
        over.set()
