"""What conversations come to under templates with different quirks."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.base.errors import InvalidRequest

USER = {"role": "user", "content": "hi"}


def test_reasoning_calls_and_outputs_are_one_assistant_message_and_tool_messages(
    render: Any,
) -> None:
    thought = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    items = [
        USER,
        thought,
        render.said("assistant", "Let me see."),
        render.call("c1"),
        render.call("c2", arguments="{}"),
        render.output("c1", "one"),
        render.output("c2", "two"),
        render.said("assistant", "Done."),
        render.said("user", "thanks"),
    ]
    assert render.text("chatml", items) == (
        "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nhm\n</think>\n\nLet me see."
        '<tool_call>\n{"name": "f", "arguments": {"a":  1}}\n</tool_call>'
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user<tool_response>\none\n</tool_response><tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nDone.<|im_end|>\n<|im_start|>user\nthanks<|im_end|>\n<|im_start|>assistant\n"
    )


def test_arguments_go_to_the_template_as_the_model_wrote_them_where_it_can_take_them(
    render: Any,
) -> None:
    items = [USER, render.call("c1"), render.output("c1", "one")]
    assert '"arguments": {"a":  1}}' in render.text("chatml", items)
    assert '"arguments": {"a": 1}}' in render.text("alternate", items)
    assert '"parameters": {"a": 1}}' in render.text("one_call", items)
    assert '<sep>{"a":  1}' in render.text("no_content", items)
    assert "call:f{a:<|1|>}" in render.text("own_notation", items)


def test_arguments_that_are_no_object_do_not_stop_a_prompt(render: Any) -> None:
    for written in ('{"a": ', "[1]", "", "12", "[" * 100_000):
        items = [USER, render.call("c1", arguments=written), render.output("c1", "one")]
        for template in ("chatml", "alternate", "one_call", "no_content"):
            assert "one" in render.text(template, items)


def test_instructions_come_first_with_the_leading_messages_of_developers(render: Any) -> None:
    items = [render.said("developer", "Be brief."), render.said("system", "Be kind."), USER]
    text = render.text("chatml", items, instructions="You are X.")
    assert text.startswith(
        "<|im_start|>system\nYou are X.<|im_end|>\n<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user"
    )


def test_late_messages_stay_where_they_are_if_the_template_takes_them(render: Any) -> None:
    items = [USER, render.said("assistant", "yo"), render.said("developer", "late"), USER]
    text = render.text("chatml", items)
    assert "yo<|im_end|>\n<|im_start|>system\nlate<|im_end|>\n<|im_start|>user\nhi" in text


@pytest.mark.parametrize("template", ["alternate", "one_call"])
def test_late_messages_join_the_first_one_if_the_template_refuses_or_drops_them(
    render: Any, template: str
) -> None:
    items = [
        render.said("system", "one"),
        USER,
        render.said("assistant", "yo"),
        render.said("developer", "two"),
        USER,
    ]
    text = render.text(template, items)
    assert "one\n\ntwo" in text
    assert text.index("two") < text.index("hi")


def test_without_a_system_role_instructions_open_the_first_message_of_the_user(render: Any) -> None:
    assert render.text("no_system", [USER], instructions="Be brief.") == (
        "<bos><start_of_turn>user\nBe brief.\n\nhi<end_of_turn>\n<start_of_turn>model\n"
    )


def test_neighbours_are_joined_where_roles_have_to_alternate(render: Any) -> None:
    items = [USER, render.said("user", "there"), render.said("assistant", "yo"), USER]
    assert render.text("alternate", items) == "[INST]hi\n\nthere[/INST]yo</s>[INST]hi[/INST]"


def test_call_ids_are_shortened_where_they_have_to_be_and_stay_pairs(render: Any) -> None:
    items = [
        USER,
        render.call("call_0123456789"),
        render.call("AbCdEf012"),
        render.output("call_0123456789", "one"),
        render.output("AbCdEf012", "two"),
    ]
    text = render.text("alternate", items)
    first = text.split("[RESULT]one#")[1][:9]
    assert first.isalnum()
    assert f"#{first}" in text.split("[RESULT]")[0]
    assert text.count("#AbCdEf012") == 2


def test_parallel_calls_follow_each_other_where_a_template_takes_one_at_once(render: Any) -> None:
    items = [
        USER,
        render.call("c1", "f"),
        render.call("c2", "g"),
        render.output("c2", "two"),
        render.output("c1", "one"),
    ]
    text = render.text("one_call", items)
    order = ['"name": "f"', '"one"', '"name": "g"', '"two"']
    assert [text.count(word) for word in order] == [1, 1, 1, 1]
    assert sorted(order, key=text.index) == order


def test_text_and_call_are_two_messages_where_a_template_takes_no_both(render: Any) -> None:
    items = [USER, render.said("assistant", "Wait."), render.call("c1"), render.output("c1", "one")]
    text = render.text("no_content", items)
    assert '<assistant>Wait.<end><assistant><call>f<sep>{"a":  1}<end><output>one' in text


def test_a_template_that_takes_only_parts_gets_parts(render: Any) -> None:
    items = [USER, render.said("assistant", "yo")]
    text = render.text("parts", items, instructions="Be brief.")
    assert text == "<system>Be brief.</system><user>hi</user><assistant>yo</assistant>"


def test_tools_have_the_shape_of_chat_completions(render: Any) -> None:
    text = render.text("chatml", [USER], tools=[render.F])
    assert (
        '{"type": "function", "function": {"name": "f", "description": "Does f.", "parameters": {"type": "object"}}}'
        in text
    )


def test_a_template_that_reads_xml_tools_alone_gets_them(render: Any) -> None:
    """SmolLM3's, which lists Python's tools apart."""
    template = (
        "{%- if xml_tools or python_tools -%}{%- for tool in xml_tools[:] -%}<tools>{{ tool | string }}</tools>"
        "{%- endfor -%}{%- endif -%}{%- for message in messages -%}{{ message.content }}{%- endfor -%}"
    )
    assert "'name': 'f'" in render.text(template, [USER], tools=[render.F])
    assert "<tools>" not in render.text(template, [USER])
    own = {"xml_tools": [{"name": "mine"}]}
    shown = render.text(template, [USER], tools=[render.F], chat_template_kwargs=own)
    assert "mine" in shown
    assert "'name': 'f'" not in shown


def test_tools_for_a_template_without_a_place_for_them_are_refused(render: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        render.text("no_system", [USER], tools=[render.F])
    assert caught.value.param == "tools"
    with pytest.raises(InvalidRequest) as caught:
        render.text("no_system", [USER, render.call("c1")])
    assert caught.value.param == "input[1]"


def test_what_the_template_refuses_is_told_to_the_client(render: Any) -> None:
    with pytest.raises(InvalidRequest, match="roles must alternate") as caught:
        render.text("alternate", [render.said("assistant", "yo")])
    assert caught.value.param == "input"
