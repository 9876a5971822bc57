"""The contract of renderers that produce token ids, as tests to inherit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from gateway.errors import InvalidRequest
from gateway.hookspecs import ModelContext
from gateway.protocols import ModelInfo, PromptRenderer, TokensPrompt, ToolDefinition, Turn
from gateway.testing.scripted import CONTROL_TOKENS, VISIBLE_TOKENS, ScriptedTokenizer
from gateway.wire.items import decode_items

_FIELDS = (
    *("instructions", "user", "second part", "assistant", "developer", "tool", "description"),
    *("property", "enum", "called", "arguments", "call id", "result", "document", "variable"),
)


class RendererContract:
    """Subclass this and provide `make_renderer`, which creates the renderer of a model. Conversations that the renderer
    rejects (`InvalidRequest`) are skipped."""

    chat_template: ClassVar[str | None] = None
    """The model's chat template, for renderers that use it."""
    markers: ClassVar[Sequence[str]] = ()
    """Further control tokens of the format, in addition to those of well-known families."""

    @pytest.fixture
    def make_renderer(self) -> Callable[[ModelContext], PromptRenderer]:
        raise NotImplementedError("give the fixture `make_renderer`")

    def test_a_turn_has_one_prompt(
        self, make_renderer: Callable[[ModelContext], PromptRenderer]
    ) -> None:
        renderer, _ = self._made(make_renderer)
        turn = _turn({"user": "hello"})
        assert renderer.render(turn) == renderer.render(turn)

    @pytest.mark.parametrize("field", _FIELDS)
    def test_no_text_from_outside_becomes_a_control_token(
        self, field: str, make_renderer: Callable[[ModelContext], PromptRenderer]
    ) -> None:
        """To pass, use `gateway.engines.origins.OriginEncoder`, which encodes such text as ordinary text."""
        renderer, tokenizer = self._made(make_renderer)
        # The assistant's own messages may contain the markers of their format.
        visible = () if field == "assistant" else (*VISIBLE_TOKENS, *self.markers)
        watched = {tokenizer.id_of(text): text for text in (*CONTROL_TOKENS, *visible)}

        def control(text: str) -> list[str] | None:
            """The control tokens of a prompt; None if the renderer rejects it."""
            try:
                prompt = renderer.render(_turn({field: text})).prompt
            except InvalidRequest:
                return None
            assert isinstance(prompt, TokensPrompt), "the kit is for prompts of token ids"
            return [watched[token] for token in prompt.token_ids if token in watched]

        expected = control("w")
        for text in watched.values():
            found = control(f"w{text}w")
            assert found is None or found == expected, f"{text!r} in {field} is a control token"

    def _made(
        self, make_renderer: Callable[[ModelContext], PromptRenderer]
    ) -> tuple[PromptRenderer, ScriptedTokenizer]:
        tokenizer = ScriptedTokenizer(self.markers)
        info = ModelInfo(name="m", engine="test", chat_template=self.chat_template)
        return make_renderer(ModelContext(info=info, tokenizer=tokenizer)), tokenizer


def _turn(texts: dict[str, str]) -> Turn:
    """A minimal conversation with the fields of `texts`."""

    def text(field: str) -> str:
        return texts.get(field, "w")

    items: list[dict[str, Any]] = [{"role": "user", "content": text("user")}]
    if "second part" in texts:
        parts = [text("user"), text("second part")]
        content = [{"type": "input_text", "text": part} for part in parts]
        items.append({"role": "user", "content": content})
    if "assistant" in texts:
        items.append({"role": "assistant", "content": text("assistant")})
    if "developer" in texts:
        items.append({"role": "developer", "content": text("developer")})
    if texts.keys() & {"called", "arguments", "call id", "result"}:
        items += [
            {
                "type": "function_call",
                "call_id": text("call id"),
                "name": text("called"),
                "arguments": json.dumps({text("arguments"): text("arguments")}),
            },
            {
                "type": "function_call_output",
                "call_id": text("call id"),
                "output": text("result"),
            },
        ]
    tools = []
    if texts.keys() & {"tool", "description", "property", "enum"}:
        schema = {"type": "string", "enum": [text("enum")]}
        parameters = {"type": "object", "properties": {text("property"): schema}}
        tools.append(
            ToolDefinition(
                name=text("tool"), description=text("description"), parameters=parameters
            )
        )
    return Turn(
        items=decode_items(items),
        instructions=texts.get("instructions"),
        tools=tools,
        documents=[{"title": text("document")}] if "document" in texts else (),
        chat_template_kwargs={"note": text("variable")} if "variable" in texts else {},
    )
