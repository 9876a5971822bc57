"""Broken renderers, each of which the kit for renderers must catch by the test that is named beside it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from gateway.base.errors import InvalidRequest
from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import (
    PromptRenderer,
    RenderedPrompt,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway.sdk.engines import OriginEncoder
from gateway.wire.content import InputText, OutputText
from gateway.wire.items import FunctionCall, FunctionCallOutput, Item, Message
from gateway_testing import RendererContract


class Transcript:
    """A correct renderer: one line for each item, all of it ordinary text."""

    def __init__(self, context: ModelContext) -> None:
        assert context.tokenizer is not None
        self.tokenizer = context.tokenizer
        self.encoder = OriginEncoder(context.tokenizer)

    def render(self, turn: Turn) -> RenderedPrompt:
        lines = [turn.instructions] if turn.instructions else []
        lines += [self.tool(each) for each in turn.tools]
        lines += [self.line(number, item) for number, item in enumerate(turn.items)]
        text = "".join(f"{line}\n" for line in lines)
        tail = "assistant:" * turn.add_generation_prompt
        return RenderedPrompt(prompt=TokensPrompt(token_ids=self.encode(text + tail)))

    def encode(self, text: str) -> list[int]:
        return self.encoder.ordinary(text)

    def tool(self, tool: ToolDefinition) -> str:
        return f"tool {tool.name}: {tool.description} {tool.parameters}"

    def line(self, number: int, item: Item) -> str:
        match item:
            case Message():
                for place, part in enumerate(item.content):
                    if not isinstance(part, InputText | OutputText):
                        self.refuse(number, place)
                return f"{item.role}: {item.text}"
            case FunctionCall():
                return f"{item.name}({item.arguments})"
            case FunctionCallOutput():
                return f"result: {item.output}"
            case _:
                raise InvalidRequest("This item is unknown.", param=("input", number))

    def refuse(self, number: int, place: int) -> None:
        raise InvalidRequest("Only text is read.", param=("input", number, "content", place))


class Counting(Transcript):
    """Its prompts depend on how many were rendered before."""

    rendered = 0

    def render(self, turn: Turn) -> RenderedPrompt:
        self.rendered += 1
        return self._with(f"{self.rendered} ", super().render(turn))

    def _with(self, text: str, rendered: RenderedPrompt) -> RenderedPrompt:
        assert isinstance(rendered.prompt, TokensPrompt)
        ids = [*self.encode(text), *rendered.prompt.token_ids]
        return RenderedPrompt(prompt=TokensPrompt(token_ids=ids))


class CountingMessages(Counting):
    """Each new message changes the beginning of the prompt."""

    def render(self, turn: Turn) -> RenderedPrompt:
        return self._with(f"{len(turn.items)} messages ", Transcript.render(self, turn))


class Changing(Transcript):
    def render(self, turn: Turn) -> RenderedPrompt:
        rendered = super().render(turn)
        turn.items.reverse()  # type: ignore[attr-defined]
        return rendered


class Forgetful(Transcript):
    """Reads the last three items only."""

    def line(self, number: int, item: Item) -> str:
        return super().line(number, item) if number > 1 else ""


class Reversing(Transcript):
    def encode(self, text: str) -> list[int]:
        return super().encode("\n".join(reversed(text.split("\n"))))


class WithoutCalls(Transcript):
    def line(self, number: int, item: Item) -> str:
        return "" if isinstance(item, FunctionCall) else super().line(number, item)


class WithoutTools(Transcript):
    def tool(self, tool: ToolDefinition) -> str:
        return ""


class RefusingTools(Transcript):
    """Its error names another parameter."""

    def tool(self, tool: ToolDefinition) -> str:
        raise InvalidRequest("No tools.", param="input")


class Dropping(Transcript):
    """What it cannot show is left out."""

    def refuse(self, number: int, place: int) -> None:
        pass


class Misnaming(Transcript):
    def refuse(self, number: int, place: int) -> None:
        raise InvalidRequest("Only text is read.", param="input")


class Joining(Transcript):
    """Special tokens of anybody's text count."""

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text))


class Sleeping(Transcript):
    def encode(self, text: str) -> list[int]:
        time.sleep(0.001)
        return super().encode(text)


class Quadratic(Transcript):
    def encode(self, text: str) -> list[int]:
        for end in range(0, len(text), 4):
            assert text[:end].count("\0") == 0
        return super().encode(text)


class Kit(RendererContract):
    """Not collected: its tests are called here."""


@pytest.mark.parametrize(
    ("test", "make"),
    [
        ("test_a_turn_has_one_prompt", Counting),
        ("test_rendering_does_not_change_the_turn", Changing),
        ("test_what_was_said_is_in_the_prompt_in_its_order", Forgetful),
        ("test_what_was_said_is_in_the_prompt_in_its_order", Reversing),
        ("test_calls_and_their_results_are_in_the_prompt", WithoutCalls),
        ("test_tools_are_in_the_prompt_or_refused", WithoutTools),
        ("test_tools_are_in_the_prompt_or_refused", RefusingTools),
        ("test_a_conversation_begins_as_before", CountingMessages),
        ("test_rendering_waits_for_nothing", Sleeping),
        pytest.param("test_the_cost_is_linear", Quadratic, marks=pytest.mark.slow),
    ],
)
def test_a_renderer_that_breaks_a_promise_is_caught(
    test: str, make: Callable[[ModelContext], PromptRenderer]
) -> None:
    promise = getattr(Kit(), test)
    promise(Transcript)
    with pytest.raises(AssertionError):
        promise(make)


@pytest.mark.parametrize("make", [Dropping, Misnaming])
def test_a_part_that_is_dropped_or_misnamed_is_caught(
    make: Callable[[ModelContext], PromptRenderer],
) -> None:
    promise = Kit().test_a_part_that_cannot_be_shown_is_refused_by_its_place
    promise("input_image", Transcript)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        promise("input_image", make)


def test_forged_control_tokens_are_caught() -> None:
    promise = Kit().test_no_text_from_outside_becomes_a_control_token
    promise("user", Transcript)
    with pytest.raises(AssertionError, match="in user is a control token"):
        promise("user", Joining)
