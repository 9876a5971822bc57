"""The renderers that come with the gateway, held against the kit for renderers; and renderers that it must find wanting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import (
    ModelInfo,
    NamedTool,
    PromptRenderer,
    RenderedPrompt,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway.wire.item_decoding import decode_items
from gateway_chat_template import ChatTemplateConfig, ChatTemplateRenderer
from gateway_harmony import HarmonyRenderer, RendererConfig
from gateway_harmony.encoding import harmony
from gateway_harmony.markers import MARKERS
from gateway_scripted import ScriptedTokenizer
from gateway_scripted.chatml import CHAT_TEMPLATE
from gateway_testing import RendererContract


class TestChatTemplate(RendererContract):
    chat_template = CHAT_TEMPLATE

    @pytest.fixture
    def make_renderer(self) -> Callable[[ModelContext], PromptRenderer]:
        return lambda context: ChatTemplateRenderer(ChatTemplateConfig(), context)


class TestHarmony(RendererContract):
    @pytest.fixture
    def make_renderer(self) -> Callable[[ModelContext], PromptRenderer]:
        return lambda context: HarmonyRenderer(RendererConfig(), context)


class Careless:
    """A renderer that encodes what it has joined."""

    def __init__(self, context: ModelContext) -> None:
        assert context.tokenizer is not None
        self.tokenizer = context.tokenizer

    def render(self, turn: Turn) -> RenderedPrompt:
        text = f"<|im_start|>user\n{turn.items[0].text}<|im_end|>\n"  # type: ignore[union-attr]
        return RenderedPrompt(prompt=TokensPrompt(token_ids=self.tokenizer.encode(text)))


def test_the_kit_finds_a_renderer_that_encodes_what_it_has_joined() -> None:
    kit = RendererContract()
    kit.test_no_text_from_outside_becomes_a_control_token("description", Careless)
    with pytest.raises(AssertionError, match="in user is a control token"):
        kit.test_no_text_from_outside_becomes_a_control_token("user", Careless)


class GptOss:
    """The vocabulary of gpt-oss as an engine has it."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = harmony().encode(text, allowed_special="all")
        return ids

    def decode(self, token_ids: Any, *, skip_special_tokens: bool = False) -> str:
        return str(harmony().decode(token_ids))

    def token_bytes(self, token_id: int) -> bytes:
        return bytes(harmony()._inner.decode_bytes([token_id]))


TEXTS = st.lists(
    st.sampled_from(
        [*MARKERS, "<|endoftext|>", "<|im_end|>", "<", "|", ">", "w", " ", "end", "\n"]
    ),
    min_size=1,
    max_size=5,
).map("".join)


@pytest.mark.parametrize("tokenizer", [GptOss(), ScriptedTokenizer()], ids=["gpt-oss", "another"])
def test_no_text_is_a_special_token_of_harmony_not_even_a_name(tokenizer: Any) -> None:
    special = {tokenizer.encode(marker)[0] for marker in (*MARKERS, "<|endoftext|>")}
    context = ModelContext(info=ModelInfo(name="m", engine="test"), tokenizer=tokenizer)
    renderer = HarmonyRenderer(RendererConfig(), context)

    def control(text: str) -> list[int]:
        items = [
            {"role": "user", "content": f"w{text}"},
            {"role": "assistant", "content": f"w{text}", "phase": "commentary"},
            {
                "type": "function_call",
                "call_id": f"w{text}",
                "name": f"w{text}",
                "arguments": f"w{text}",
            },
            {"type": "function_call_output", "call_id": f"w{text}", "output": f"w{text}"},
        ]
        turn = Turn(
            items=decode_items(items),
            instructions=f"w{text}",
            tools=[ToolDefinition(name=f"w{text}", description=f"w{text}")],
            tool_choice=NamedTool(f"w{text}"),
            reasoning_effort="none",
            chat_template_kwargs={"model_identity": f"w{text}"},
        )
        prompt = renderer.render(turn).prompt
        assert isinstance(prompt, TokensPrompt)
        return [token for token in prompt.token_ids if token in special]

    expected = control("w")
    assert expected

    @settings(max_examples=40, deadline=None)
    @given(TEXTS)
    def holds(text: str) -> None:
        assert control(text) == expected

    holds()
