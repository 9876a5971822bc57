"""The contract of renderers that produce token ids, as tests to inherit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import pytest
from msgspec import structs

from gateway.base.errors import InvalidRequest
from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import (
    ModelInfo,
    PromptRenderer,
    RenderedPrompt,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway.wire.common import encode
from gateway.wire.item_decoding import decode_items
from gateway_doctor.checks.loop_watch import no_waiting
from gateway_testing.linear_cost import check_cost_is_linear
from gateway_testing.scripted import ScriptedTokenizer, scripted_tokenizer

MakeRenderer: TypeAlias = Callable[[ModelContext], PromptRenderer]

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
    """Control tokens of the output format, in addition to those of well-known families."""
    keeps_prefix: ClassVar[bool] = True
    """Whether the prompt of a conversation begins with the prompt of its earlier part. Caches of engines need this."""

    @pytest.fixture
    def make_renderer(self) -> MakeRenderer:
        raise NotImplementedError("give the fixture `make_renderer`")

    def test_a_turn_has_one_prompt(self, make_renderer: MakeRenderer) -> None:
        """The prompt does not depend on earlier prompts, on the thread, or on the renderer of the model."""
        renderer, _ = self._made(make_renderer)
        turn, other = (
            _turn({"user": "hello"}),
            _turn({"user": "something else", "instructions": "x"}),
        )
        expected = renderer.render(turn)
        renderer.render(other)
        assert renderer.render(turn) == expected
        assert self._made(make_renderer)[0].render(turn) == expected
        with ThreadPoolExecutor(4) as threads:
            both = list(threads.map(renderer.render, [turn, other] * 8))
        assert both[::2] == [expected] * 8

    def test_rendering_does_not_change_the_turn(self, make_renderer: MakeRenderer) -> None:
        renderer, _ = self._made(make_renderer)
        texts = {"user": "hello", "called": "w", "result": "it is", "tool": "w", "assistant": "w"}
        turn = _turn(texts)
        before = encode(structs.asdict(turn))
        self._accepted(renderer, turn)
        assert encode(structs.asdict(turn)) == before

    def test_what_was_said_is_in_the_prompt_in_its_order(self, make_renderer: MakeRenderer) -> None:
        renderer, tokenizer = self._made(make_renderer)
        said = [
            "the first question",
            "the first answer",
            "the second question",
            "the second answer",
        ]
        roles = ("user", "assistant", "user", "assistant")
        items = [
            {"role": role, "content": text} for role, text in zip(roles, said, strict=True)
        ] + [{"role": "user", "content": "and the last"}]
        prompt = self._text(renderer, tokenizer, Turn(items=decode_items(items)))
        places = [prompt.find(text) for text in (*said, "and the last")]
        assert -1 not in places, f"{[*said, 'and the last'][places.index(-1)]!r} is missing"
        assert places == sorted(places)

    def test_calls_and_their_results_are_in_the_prompt(self, make_renderer: MakeRenderer) -> None:
        """This holds if the renderer accepts them."""
        renderer, tokenizer = self._made(make_renderer)
        texts = {"called": "look_up", "arguments": "the_argument", "result": "the result"}
        prompt = self._text(renderer, tokenizer, _turn({**texts, "tool": "look_up"}))
        for text in texts.values():
            assert text in prompt, f"{text!r} is missing"

    def test_tools_are_in_the_prompt_or_refused(self, make_renderer: MakeRenderer) -> None:
        """A refusal names the parameter `tools`. Without tools, the prompt contains nothing about them."""
        renderer, tokenizer = self._made(make_renderer)
        texts = {"tool": "zebra_finder", "description": "Finds zebras.", "property": "how_many"}
        assert "zebra_finder" not in self._text(renderer, tokenizer, _turn({"user": "hello"}))
        turn = _turn(texts)
        refusal: InvalidRequest | None = None
        try:
            rendered = renderer.render(turn)
        except InvalidRequest as error:
            refusal = error
        if refusal is not None:
            assert refusal.at[:1] == ("tools",), f"{refusal.message!r} names {refusal.param}"
            return
        prompt = tokenizer.decode(_ids(rendered))
        for text in texts.values():
            assert text in prompt, f"{text!r} is missing"

    @pytest.mark.parametrize("kind", ["input_image", "input_audio", "input_file"])
    def test_a_part_that_cannot_be_shown_is_refused_by_its_place(
        self, kind: str, make_renderer: MakeRenderer
    ) -> None:
        """The model takes no media in this test. No part may be dropped silently."""
        renderer, _ = self._made(make_renderer)
        parts: dict[str, dict[str, Any]] = {
            "input_image": {"image_url": "data:image/png;base64,AAAA", "detail": "auto"},
            "input_audio": {"input_audio": {"data": "AAAA", "format": "wav"}},
            "input_file": {"file_data": "data:text/plain;base64,AAAA", "filename": "a.txt"},
        }
        content = [{"type": "input_text", "text": "what is it?"}, {"type": kind, **parts[kind]}]
        items = [{"role": "user", "content": "hello"}, {"role": "user", "content": content}]
        with pytest.raises(InvalidRequest) as caught:
            renderer.render(Turn(items=decode_items(items)))
        assert caught.value.at[:2] == ("input", 1), f"{caught.value.message!r} names another place"

    def test_a_conversation_begins_as_before(self, make_renderer: MakeRenderer) -> None:
        if not self.keeps_prefix:
            pytest.skip("the format changes what was said before")
        renderer, _ = self._made(make_renderer)
        texts = ("a question", "an answer", "one more question", "one more answer", "the last")
        items = decode_items(
            [
                {"role": ("user", "assistant")[number % 2], "content": text}
                for number, text in enumerate(texts)
            ]
        )
        prompts = [
            _ids(
                renderer.render(
                    Turn(items=items[:size], instructions="Be kind.", add_generation_prompt=False)
                )
            )
            for size in (1, 3, 5)
        ]
        for shorter, longer in pairwise(prompts):
            assert list(longer[: len(shorter)]) == list(shorter)

    def test_rendering_waits_for_nothing(self, make_renderer: MakeRenderer) -> None:
        """Rendering uses no sockets, no processes and no sleeping: short turns are rendered on the event loop."""
        renderer, _ = self._made(make_renderer)
        with no_waiting("rendering"):
            renderer.render(_turn({"user": "hello"}))

    def test_the_cost_is_linear(self, make_renderer: MakeRenderer) -> None:
        """Eight times as much text, or as many messages, takes less than 24 times the CPU time; quadratic work takes 64
        times."""
        renderer, _ = self._made(make_renderer)
        for messages, size in ((1, 20_000), (250, 20)):
            eightfold = (messages * 8, size) if messages > 1 else (messages, size * 8)
            short, long = _long_turn(messages, size), _long_turn(*eightfold)
            check_cost_is_linear(
                partial(renderer.render, short),
                partial(renderer.render, long),
                f"{messages} messages",
            )

    @pytest.mark.parametrize("field", _FIELDS)
    def test_no_text_from_outside_becomes_a_control_token(
        self, field: str, make_renderer: MakeRenderer
    ) -> None:
        """Use `gateway.engines.origins.OriginEncoder` to pass: it encodes control tokens in such text as ordinary
        text."""
        renderer, tokenizer = self._made(make_renderer)
        # The assistant's messages may contain markers of the output format, which are not special
        # tokens.
        watched = {
            token.id: text
            for text, token in tokenizer.added_tokens.items()
            if token.special or field != "assistant"
        }

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

    def _accepted(self, renderer: PromptRenderer, turn: Turn) -> RenderedPrompt:
        """Render the prompt of a turn. Skips the test if the renderer rejects the turn."""
        try:
            return renderer.render(turn)
        except InvalidRequest as error:
            pytest.skip(f"the renderer refuses it: {error.message}")

    def _text(self, renderer: PromptRenderer, tokenizer: ScriptedTokenizer, turn: Turn) -> str:
        return tokenizer.decode(_ids(self._accepted(renderer, turn)))

    def _made(self, make_renderer: MakeRenderer) -> tuple[PromptRenderer, ScriptedTokenizer]:
        tokenizer = scripted_tokenizer(self.markers)
        info = ModelInfo(name="m", engine="test", chat_template=self.chat_template)
        return make_renderer(ModelContext(info=info, tokenizer=tokenizer)), tokenizer


def _ids(rendered: RenderedPrompt) -> Sequence[int]:
    assert isinstance(rendered.prompt, TokensPrompt), "the kit is for prompts of token ids"
    return rendered.prompt.token_ids


def _long_turn(messages: int, size: int) -> Turn:
    text = ("word < and { more \n" * (size // 19 + 1))[:size]
    items = [
        {"role": ("user", "assistant")[number % 2], "content": text} for number in range(messages)
    ]
    return Turn(items=decode_items(items))


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
