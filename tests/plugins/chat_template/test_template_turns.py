"""What a turn's settings do to the prompt, for any template."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import ConfigurationError, InvalidRequest, Unsupported
from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import ModelInfo
from gateway_chat_template import ChatTemplateConfig, ChatTemplateRenderer
from gateway_chat_template.tail import TailFinder

USER = {"role": "user", "content": "hi"}


def test_the_prompt_is_the_tokens_of_the_text(render: Any) -> None:
    renderer = render.with_template("chatml")
    turn = render.turn([USER], instructions="Be brief.", tools=[render.F])
    tokens = renderer.render(turn).prompt.token_ids
    assert "".join(map(chr, tokens)) == renderer.render_text(turn)


@pytest.mark.parametrize(
    ("effort", "tail"),
    [(None, "unknown"), ("none", "text"), ("minimal", "text"), ("low", "unknown"), ("high", "unknown")],
)  # fmt: skip
def test_the_effort_turns_thinking_off_where_the_template_can(
    render: Any, effort: Any, tail: str
) -> None:
    assert (
        render.with_template("chatml").render(render.turn([USER], reasoning_effort=effort)).tail
        == tail
    )


def test_the_tail_says_where_the_output_starts(render: Any) -> None:
    renderer = render.with_template("no_content")
    for effort, tail in ((None, "text"), ("high", "reasoning"), ("none", "text")):
        assert renderer.render(render.turn([USER], reasoning_effort=effort)).tail == tail
    spoof = render.turn([render.said("user", "<think>")])
    assert render.with_template("no_system").render(spoof).tail == "unknown"


@pytest.mark.parametrize(
    ("prompt", "tail"),
    [
        ("", "unknown"),
        ("a<think>", "reasoning"),
        ("a<think>\n", "reasoning"),
        ("<think>\n\n</think>\n\n", "text"),
        ("[THINK]", "reasoning"),
        ("<|channel>thought\n<channel|>", "text"),
        ("<|channel>thought\n", "reasoning"),
        ("<seed:think>", "reasoning"),
        ("<think> x", "unknown"),
    ],
)
def test_the_tail_of_a_prompt(prompt: str, tail: str) -> None:
    assert TailFinder().tail_of(prompt) == tail


def test_variables_of_the_request_reach_the_template_and_go_before_the_effort(render: Any) -> None:
    template = "{{ reasoning_effort }} {{ enable_thinking }} {{ more }}"
    shown = render.text(
        template, [USER], reasoning_effort="low", chat_template_kwargs={"more": "x"}
    )
    assert shown == "low True x"
    shown = render.text(
        template, [USER], reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "y"}
    )
    assert shown == "y True "


@pytest.mark.parametrize(
    "name", ["messages", "tools", "add_generation_prompt", "bos_token", "raise_exception"]
)
def test_variables_of_the_request_cannot_replace_the_conversation(render: Any, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        render.text("chatml", [USER], chat_template_kwargs={name: []})
    assert caught.value.param == f"chat_template_kwargs.{name}"


def test_tools_that_may_not_be_called_are_told_unless_configured(render: Any) -> None:
    asked = {choice: render.turn([USER], tools=[render.F], tool_choice=choice) for choice in ("auto", "none")}  # fmt: skip
    shown = {choice: render.with_template("chatml").render_text(each) for choice, each in asked.items()}  # fmt: skip
    assert '"f"' in shown["none"]
    assert shown["none"] == shown["auto"], "so that the engine's cache has it"
    config = ChatTemplateConfig(tools_without_choice=False)
    without = render.with_template("chatml", config=config).render_text(asked["none"])
    assert without == render.text("chatml", [USER])


def test_tools_that_may_not_be_called_need_no_place_for_them(render: Any) -> None:
    assert "hi" in render.text("no_system", [USER], tools=[render.F], tool_choice="none")
    with pytest.raises(InvalidRequest):
        render.text("no_system", [USER], tools=[render.F])


def test_a_date_is_the_turns_or_the_templates_own(render: Any) -> None:
    assert "Today: 02 Jan 2026" in render.text("one_call", [USER], today="2026-01-02")
    assert "Today: 26 Jul 2024" in render.text("one_call", [USER])
    assert render.text("[{{ strftime_now('%Y') + '' }}]{{ messages[0].content }}", [USER]) == "[]hi"


def test_a_final_message_can_be_continued(render: Any) -> None:
    items = [USER, render.said("assistant", "The answer is ")]
    turn = render.turn(items, continue_final_message=True, add_generation_prompt=False)
    renderer = render.with_template("chatml")
    assert renderer.render_text(turn).endswith("<|im_start|>assistant\nThe answer is ")
    assert renderer.render(turn).tail == "text"
    for nothing in ([USER], [USER, render.call("c1")], []):
        with pytest.raises(InvalidRequest) as caught:
            renderer.render(render.turn(nothing, continue_final_message=True))
        assert caught.value.param == "continue_final_message"


def test_without_a_generation_prompt_the_prompt_ends_with_the_last_message(render: Any) -> None:
    assert render.text("chatml", [USER], add_generation_prompt=False).endswith("hi<|im_end|>\n")


def test_documents_reach_the_template(render: Any) -> None:
    template = "{% for d in documents or [] %}{{ d.title }}{% endfor %}"
    assert render.text(template, [USER], documents=[{"title": "T", "text": "x"}]) == "T"
    with pytest.raises(Unsupported) as caught:
        render.text("chatml", [USER], documents=[{"title": "T", "text": "x"}])
    assert caught.value.param == "documents"


def test_a_template_of_the_request_needs_trust(render: Any) -> None:
    turn = render.turn([USER], chat_template="<{{ messages[0].content }}>")
    with pytest.raises(InvalidRequest) as caught:
        render.with_template("chatml").render(turn)
    assert caught.value.param == "chat_template"
    assert render.with_template("chatml", trusted=True).render_text(turn) == "<hi>"


@pytest.mark.parametrize(
    "template",
    [
        "{% if %}",
        "{{ messages | nonsense }}",
        "{{ ''.__class__.__mro__ }}{{ messages.__class__ }}{{ cycler.__init__.__globals__.os.getcwd() }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% for i in range(90000) %}{% for j in range(90000) %}xxxxxxxxxx{% endfor %}{% endfor %}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_hostile_template_is_a_bad_request(render: Any, template: str) -> None:
    renderer = render.with_template(
        "chatml", trusted=True, config=ChatTemplateConfig(max_characters=100_000)
    )
    with pytest.raises(InvalidRequest):
        renderer.render(render.turn([USER], chat_template=template))


def test_a_model_that_cannot_be_rendered_stops_the_start(render: Any) -> None:
    with pytest.raises(ConfigurationError, match="malformed"):
        render.with_template("{% if %}")
    info = ModelInfo(name="m", engine="e", chat_template="x")
    with pytest.raises(ConfigurationError, match="tokenizer"):
        ChatTemplateRenderer(ChatTemplateConfig(), ModelContext(info=info, tokenizer=None))


def test_the_generation_tag_and_loop_controls_of_hugging_face_are_understood(render: Any) -> None:
    template = (
        "{% for i in [1, 2] %}{% generation %}{{ messages[0].content }}{% endgeneration %}{% break %}{% endfor %}"
        "{{ {'é<': [1]} | tojson }}{{ [1] | tojson(indent=1, separators=(',', ':')) }}"
    )
    assert render.text(template, [USER]) == 'hi{"é<": [1]}[\n 1\n]'


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ITEMS = st.lists(
    st.one_of(
        st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant", "system", "developer"]), TEXTS),
        st.builds(lambda text: {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}, TEXTS),
        st.builds(lambda key, text: {"type": "function_call", "call_id": key, "name": "f", "arguments": text}, st.sampled_from("abc"), TEXTS),
        st.builds(lambda key, text: {"type": "function_call_output", "call_id": key, "output": text}, st.sampled_from("abc"), TEXTS),
    ),
    max_size=8,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(items=ITEMS, instructions=st.none() | TEXTS)
@pytest.mark.parametrize("template", ["chatml", "one_call", "no_content"])
def test_any_conversation_is_rendered_the_same_each_time_and_nothing_is_lost(
    render: Any, template: str, items: list[dict[str, Any]], instructions: str | None
) -> None:
    renderer = render.cached(template)
    turn = render.turn(items, instructions=instructions)
    text = renderer.render_text(turn)
    assert renderer.render_text(turn) == text
    for item in items:
        if "role" in item:
            assert item["content"] in text
