"""Prompts that have to be those of Transformers and vLLM, or better, under templates with the habits of public ones."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gateway.base.errors import ConfigurationError, InvalidRequest
from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import ModelInfo, NamedTool, TextFormat, ToolDefinition
from gateway_chat_template import ChatTemplateConfig, ChatTemplateRenderer
from gateway_parsers import FORMATS, FormatConfig, MarkupFormat, gateway_register_parsers

USER = {"role": "user", "content": "hi"}
TOOL = ToolDefinition(name="ferry_times", description="Times.", parameters={"type": "object"})

CONTENT_ALONE = """
{%- for t in tools or [] %}{{ t | tojson }}{% endfor -%}
{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor -%}
"""
"""Takes tools, and prints only the content of messages."""

WITHOUT_TOOL_ROLE = """
{%- for t in tools or [] %}{{ t | tojson }}{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}[U]{{ m.content }}{%- elif m.role == 'assistant' -%}[A]{{ m.content }}{%- endif -%}
{%- endfor -%}
"""

NO_SECOND_OPENING = """
{%- set ns = namespace(last='') -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}<result>{{ m.content }}</result>
{%- else -%}
{%- if m.role != ns.last -%}<turn>{{ m.role }}
{% endif -%}
{%- for c in m.tool_calls or [] -%}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}</call>{%- endfor -%}
{%- if m.content -%}{{ m.content }}<end>
{% endif -%}
{%- set ns.last = m.role -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<turn>assistant
{% endif -%}
"""
"""Opens no turn for a second message of the assistant, and prints text after calls."""

COMMAS = """
{%- for m in messages -%}<|im_start|>{{ 'system' if m.role == 'developer' else m.role }}
{% if m.content is string %}{{ m.content }}
{%- else %}{% for p in m.content %}{{ p.text }}{{ ', ' if not loop.last }}{% endfor %}{% endif -%}
<|im_end|>
{% endfor -%}
"""
"""Writes a comma between parts."""

USERS_PARTS = """
{%- for m in messages -%}<|{{ m.role }}|>
{%- if m.role == 'user' and m.content is not string %}{% for p in m.content %}{{ p.text }}{% endfor %}
{%- else %}{{ m.content }}{% endif -%}
<|end|>{% endfor -%}
"""

NO_SYSTEM_ROLE = """
{%- for m in messages -%}
{%- if m.role == 'system' %}{{ raise_exception('no system') }}{% endif -%}
{%- if loop.index0 and m.role == messages[loop.index0 - 1].role %}{{ raise_exception('alternate') }}{% endif -%}
<|{{ m.role }}|>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}
{%- endfor -%}
"""

TEXT_AFTER_CALLS = """
{%- for m in messages -%}<|{{ m.role }}|>
{%- for c in m.tool_calls or [] %}[{{ c.function.name }}]{% if c.function.arguments is mapping %}{% endif %}{% endfor -%}
{{ m.content }}<|end|>
{%- if m.tool_calls %}<|args|>{{ m.tool_calls[0].function.arguments | tojson }}{% endif -%}
{% endfor -%}
"""

TEXT_OR_CALLS = """
{%- for m in messages -%}
{%- if m.tool_calls -%}
{%- for c in m.tool_calls %}OPENER to={{ c.function.name }}<|end|><|args|>{{ c.function.arguments | tojson }}{% endfor -%}
{%- elif m.role == 'assistant' -%}OPENER to=user:{{ m.content }}<|end|>
{%- else -%}<|start|>{{ m.role }}:{{ m.content }}<|end|>
{%- endif -%}
{%- endfor -%}
"""

SYSTEM_THEN_DEVELOPER = """
{%- set ns = namespace(developer='') -%}
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'developer' %}{% set ns.developer = m.content ~ '; ' %}
{%- elif m.role != 'system' %}<|{{ m.role }}|>{{ ns.developer }}{{ m.content }}{% set ns.developer = '' %}{% endif -%}
{%- endfor -%}
"""
"""Shows one message of the system, first, and one of a developer, with the user's text."""

DATED = "Today: {{ strftime_now('%d %B %Y') }}. {{ messages[0].content }}"

SEES = """
{%- for m in messages %}<|{{ m.role }}|>
{%- if m.content is string %}<|text|>{{ m.content }}
{%- else -%}
{%- for p in m.content %}{% if p.type == 'image' %}<|img|>{% else %}<|text|>{{ p.text }}{% endif %}{% endfor -%}
{%- endif -%}
{%- endfor -%}
"""

SYSTEM_WITHOUT_IMAGES = """
{%- set ns = namespace(images=false) -%}
{%- for m in messages -%}
{%- if m.content is not string %}{% for p in m.content %}{% if p.type == 'image' %}{% set ns.images = true %}{% endif %}{% endfor %}{% endif -%}
{%- endfor -%}
{%- if not ns.images -%}<|start|>system<|end_header|>You help.<|eot|>{%- endif -%}
{%- for m in messages -%}<|start|>{{ m.role }}<|end_header|>
{%- if m.content is string -%}{{ m.content }}
{%- else -%}{%- for p in m.content -%}{%- if p.type == 'image' -%}<|image|>{%- else -%}{{ p.text }}{%- endif -%}{%- endfor -%}
{%- endif -%}<|eot|>
{%- endfor -%}
"""


def formatted(name: str, template: str) -> MarkupFormat:
    made: dict[str, Any] = {}

    def register(name: str, make: Any, **_: Any) -> None:
        made[name] = make

    gateway_register_parsers(register)
    info = ModelInfo(name="m", engine="e", chat_template=template)
    written: MarkupFormat = made[name](FormatConfig(), ModelContext(info=info, tokenizer=None))
    return written


def looped(render: Any, said: str = "", arguments: str = '{"quay": "north"}') -> list[Any]:
    message = [render.said("assistant", said)] if said else []
    call = render.call("c1", "ferry_times", arguments)
    return [USER, *message, call, render.output("c1", "6:10")]


@pytest.mark.parametrize("name", sorted({each.name for each in FORMATS} - {"plain", "think"}))
def test_calls_are_text_in_the_models_syntax_where_a_template_prints_only_contents(
    render: Any, name: str
) -> None:
    renderer = render.with_template(CONTENT_ALONE)
    output_format = formatted(name, CONTENT_ALONE)
    renderer.use_format(output_format)
    text = renderer.render_text(render.turn(looped(render, "I look."), tools=[TOOL]))
    before, _, after = text.partition("<|assistant|>I look.")
    assert before.endswith("<|user|>hi<|end|>")
    written, _, after = after.partition("<|end|>")
    for word in ("ferry_times", "quay", "north"):
        assert word in written
    assert after == "<|tool|>6:10<|end|>"


def test_two_calls_are_written_as_the_model_writes_two(render: Any) -> None:
    renderer = render.with_template(CONTENT_ALONE)
    renderer.use_format(formatted("granite", CONTENT_ALONE))
    items = [
        USER,
        render.call("c1", "f", '{"a": 1}'),
        render.call("c2", "g", "{}"),
        render.output("c1", "one"),
        render.output("c2", "two"),
    ]
    text = renderer.render_text(render.turn(items, tools=[TOOL]))
    assert text.endswith(
        '<|assistant|><|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]<|end|>'
        "<|tool|>one<|end|><|tool|>two<|end|>"
    )


def test_without_a_syntax_of_its_own_calls_are_lines_of_json(render: Any) -> None:
    text = render.text(CONTENT_ALONE, looped(render, "I look."), tools=[TOOL])
    assert text.endswith(
        '<|assistant|>I look.\n{"name": "ferry_times", "arguments": {"quay": "north"}}<|end|><|tool|>6:10<|end|>'
    )


def test_results_are_messages_of_the_user_where_a_template_shows_no_role_of_tools(
    render: Any,
) -> None:
    text = render.text(WITHOUT_TOOL_ROLE, looped(render), tools=[TOOL])
    assert text.endswith("[U]Result of ferry_times:\n6:10")
    assert "ferry_times" in text.partition("[A]")[2].partition("[U]")[0]


def test_text_beside_a_call_stays_inside_a_turn(render: Any) -> None:
    text = render.text(NO_SECOND_OPENING, looped(render, "I look."))
    assert text == (
        '<turn>user\nhi<end>\n<turn>assistant\n<call>ferry_times{"quay": "north"}</call>I look.<end>\n'
        "<result>6:10</result><turn>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "at_once"),
    [("chatml", "<|im_start|>assistant\none<|im_end|>\n<|im_start|>assistant\ntwo"), (NO_SECOND_OPENING, "one\n\ntwo<end>")],
)  # fmt: skip
def test_two_messages_of_the_assistant_stay_two_where_each_is_shown_as_one(
    render: Any, template: str, at_once: str
) -> None:
    items = [USER, render.said("assistant", "one"), render.said("assistant", "two"), USER]
    assert at_once in render.text(template, items)


def test_leading_system_messages_stay_apart_where_each_is_shown(render: Any) -> None:
    items = [render.said("system", "two"), USER]
    text = render.text("chatml", items, instructions="one")
    assert text.startswith("<|im_start|>system\none<|im_end|>\n<|im_start|>system\ntwo<|im_end|>\n")
    assert "one\n\ntwo" in render.text("alternate", items, instructions="one")


def parts_of(role: str, *texts: str) -> dict[str, Any]:
    if role == "assistant":
        said: list[Any] = [
            {"type": "output_text", "text": each, "annotations": []} for each in texts
        ]
    else:
        said = [{"type": "input_text", "text": each} for each in texts]
    return {"role": role, "content": said}


def talk_with(role: str, said: Any) -> list[Any]:
    return [USER, said, USER] if role == "assistant" else [said, USER]


@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
def test_parts_are_what_the_template_makes_of_them_or_else_lines(render: Any, role: str) -> None:
    talk = talk_with(role, parts_of(role, "", "one", "", "two", ""))
    shown = "system" if role == "developer" else role
    assert f"<|im_start|>{shown}\none, two<|im_end|>" in render.text(COMMAS, talk)
    assert f"<|{shown}|>one\ntwo<|end|>" in render.text(CONTENT_ALONE, talk)
    empty = talk_with(role, parts_of(role, "", ""))
    assert f"<|im_start|>{shown}\n<|im_end|>" in render.text(COMMAS, empty)


def test_parts_of_roles_whose_lists_are_not_shown_are_lines(render: Any) -> None:
    """Of the user's content, the template reads lists; other content it prints as it is."""
    for role in ("system", "assistant"):
        text = render.text(USERS_PARTS, talk_with(role, parts_of(role, "one", "two")))
        assert f"<|{role}|>one\ntwo<|end|>" in text
    assert "<|user|>onetwo<|end|>" in render.text(USERS_PARTS, [parts_of("user", "one", "two")])


@pytest.mark.parametrize("template", [COMMAS, USERS_PARTS, CONTENT_ALONE, NO_SYSTEM_ROLE])
def test_parts_of_messages_that_are_merged_are_all_shown(render: Any, template: str) -> None:
    said = [
        parts_of("system", "s1", "s2"),
        parts_of("developer", "d1", "d2"),
        parts_of("user", "u1", "u2"),
        parts_of("assistant", "a1", "a2"),
        parts_of("assistant", "b1", "b2"),
        parts_of("user", "v1", "v2"),
    ]
    text = render.text(template, said, instructions="i")
    words = ["i", *(name + number for name in "sduabv" for number in "12")]
    places = [text.find(word) for word in words]
    assert -1 not in places
    assert places[1:] == sorted(places[1:])


def test_a_continued_message_of_parts_ends_with_its_last_one(render: Any) -> None:
    talk = [USER, parts_of("assistant", "one", "two")]
    text = render.text(COMMAS, talk, continue_final_message=True, add_generation_prompt=False)
    assert text.endswith("<|im_start|>assistant\none, two")


# Text and calls of the assistant


def test_calls_stay_beside_a_text_where_the_template_shows_both(render: Any) -> None:
    """In whatever order: two messages would be another conversation."""
    text = render.text(TEXT_AFTER_CALLS, looped(render, "I look."))
    assert text.count("<|assistant|>") == 1
    assert "<|assistant|>[ferry_times]I look.<|end|>" in text


@pytest.mark.parametrize("opener", ["<|assistant|>", "<|start|>assistant"])
def test_a_text_that_is_dropped_beside_calls_is_a_message_of_its_own(
    render: Any, opener: str
) -> None:
    template = TEXT_OR_CALLS.replace("OPENER", opener)
    text = render.text(template, looped(render, "I look."))
    assert f"{opener} to=user:I look.<|end|>{opener} to=ferry_times<|end|>" in text


def test_reasoning_stays_with_the_calls_where_a_text_has_none(render: Any) -> None:
    """Of a tool loop, the reasoning is not lost by the text's being a message of its own."""
    shown = "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}"
    beside_calls = TEXT_OR_CALLS.replace("{%- for c in", shown + "{%- for c in")
    beside_text = TEXT_OR_CALLS.replace("to=user:", "to=user:" + shown)
    thought = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    user, *others = looped(render, "I look.")
    for template, order in ((beside_calls, ["I look.", "hm"]), (beside_text, ["hm", "I look."])):
        text = render.text(template.replace("OPENER", "<|assistant|>"), [user, thought, *others])
        places = [text.find(word) for word in (*order, "to=ferry_times")]
        assert -1 not in places
        assert places == sorted(places)


def test_calls_of_a_message_of_their_own_stay_one(render: Any) -> None:
    """As Chat Completions has messages: an empty message precedes the calls."""
    own = [USER, render.said("assistant", "I look."), parts_of("assistant")]
    items = [*own, render.call("c1", "f"), render.output("c1", "6:10")]
    text = render.text("chatml", items)
    assert "assistant\nI look.<|im_end|>\n<|im_start|>assistant\n<tool_call>" in text
    joined = render.text(NO_SECOND_OPENING, items)
    assert "<turn>assistant\n<call>f{" in joined
    assert joined.count("I look.") == 1


@pytest.mark.parametrize(
    ("roles", "apart"),
    [(["system", "developer"], True), (["developer", "system"], False), (["system"] * 2, False)],
)
def test_leading_messages_are_merged_only_where_one_is_not_shown(
    render: Any, roles: list[str], apart: bool
) -> None:
    said = [render.said(role, f"word{index}") for index, role in enumerate(roles)]
    text = render.text(SYSTEM_THEN_DEVELOPER, [*said, USER])
    assert ("word0\n\nword1" in text) is not apart
    assert text.index("word0") < text.index("word1")


def test_strict_is_told_as_the_client_sent_it(render: Any) -> None:
    def written(strict: bool | None) -> str:
        tool = msgspec.structs.replace(TOOL, strict=strict)
        return str(render.text(CONTENT_ALONE, [USER], tools=[tool]))

    assert '"strict": false' in written(False)
    assert '"strict": true' in written(True)
    assert "strict" not in written(None)


# Dates


@pytest.mark.parametrize(
    ("config", "at", "date"),
    [
        ({}, 1_795_651_199, "2026-11-25"),
        ({"time_zone": "Asia/Tokyo"}, 1_795_651_199, "2026-11-26"),
        ({"date": "2026-01-31"}, 1_795_651_199, "2026-01-31"),
        ({"date": "none"}, 1_795_651_199, None),
    ],
)
def test_the_date_is_that_of_the_request_in_the_models_time_zone(
    render: Any, config: Any, at: int, date: str | None
) -> None:
    renderer = render.with_template(DATED, config=ChatTemplateConfig(**config))
    assert renderer.date_at(at) == date


@pytest.mark.parametrize(
    "zone", ["UTC", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns"]
)
def test_each_time_has_the_date_of_its_zone_in_any_order(render: Any, zone: str) -> None:
    """Some are a quarter of an hour apart from others. Times around all changes of one year's days."""
    renderer = render.with_template(DATED, config=ChatTemplateConfig(time_zone=zone))
    begin = 1_767_225_600  # 2026-01-01
    times = [
        begin + day * 86_400 + step * 300 + off
        for day in range(366)
        for step in range(0, 288, 7)
        for off in (0, 299)
    ]
    random.Random(1).shuffle(times)
    for at in times:
        wanted = datetime.fromtimestamp(at, ZoneInfo(zone)).date().isoformat()
        assert renderer.date_at(at) == wanted


def test_a_template_gets_the_date(render: Any) -> None:
    assert render.text(DATED, [USER], today="2026-11-25") == "Today: 25 November 2026. hi"


@pytest.mark.parametrize("wrong", [{"date": "tomorrow"}, {"time_zone": "Mars/Olympus"}, {"time_zone": "../etc"}])  # fmt: skip
def test_a_wrong_date_or_time_zone_stops_the_start(render: Any, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        render.with_template(DATED, config=ChatTemplateConfig(**wrong))


# Templates for tools


def named(default: str, tool_use: str) -> ChatTemplateRenderer:
    info = ModelInfo(name="m", engine="e", chat_template=default, tool_chat_template=tool_use)
    from tests.plugins.chat_template.conftest import Characters

    return ChatTemplateRenderer(
        ChatTemplateConfig(), ModelContext(info=info, tokenizer=Characters())
    )


def test_the_template_for_tools_is_used_if_there_are_tools(render: Any) -> None:
    default = "{% for m in messages %}A:{{ m.content }}{% endfor %}"
    renderer = named(default, CONTENT_ALONE)
    assert renderer.render_text(render.turn([USER])) == "A:hi"
    with_tool = renderer.render_text(render.turn([USER], tools=[TOOL]))
    assert with_tool.endswith("<|user|>hi<|end|>")
    assert '"name": "ferry_times"' in with_tool
    assert renderer.render_text(render.turn([USER], tools=[TOOL], tool_choice="none")) == with_tool


# What templates need


NEEDS_TOOLS = "{% for t in tools %}{{ t.function.name }};{% endfor %}{{ messages[0].content }}"
NEEDS_DESCRIPTIONS = "{% for t in tools or [] %}{{ t.function.name }}{{ t.function.description | tojson }}{% endfor %}{{ messages[0].content }}"


def test_templates_that_need_tools_or_descriptions_get_what_they_need(render: Any) -> None:
    assert render.text(NEEDS_TOOLS, [USER]) == "hi"
    assert render.text(NEEDS_TOOLS, [USER], tools=[TOOL], tool_choice="none") == "ferry_times;hi"
    bare = ToolDefinition(name="f")
    assert render.text(NEEDS_DESCRIPTIONS, [USER], tools=[bare]) == 'f""hi'
    assert "description" not in render.text(CONTENT_ALONE, [USER], tools=[bare])


def test_errors_of_templates_name_no_types_of_this_package(render: Any) -> None:
    template = "{% for t in tools or [] %}{{ t.function.none_such.x }}{{ t.function + 1 }}{% endfor %}{{ messages[0].content }}"
    for source in (template, template.replace(".none_such.x", "")):
        source = source.replace("{% for", "{{ 'qztool' if tools }}{% for")
        renderer = render.with_template(
            "{% if tools and tools[0].function.name == 'qztool' %}qztool{% else %}" + source + "{% endif %}"
        )  # fmt: skip
        with pytest.raises(InvalidRequest) as caught:
            renderer.render(render.turn([USER], tools=[TOOL]))
        message = str(caught.value)
        assert "failed on this conversation" in message
        for own in ("gateway_", "Kept", "OutsideText", "MarkedText"):
            assert own not in message


# Variables


SHOWN = "{{ messages[0].content }}|{% for v in [V] %}{{ v }}{% endfor %}"


@pytest.mark.parametrize(
    ("variable", "turn", "value"),
    [
        ("thinking_effort", {"reasoning_effort": "low"}, "low"),
        ("thinking_effort", {"reasoning_effort": "medium"}, "high"),
        ("thinking_effort", {"reasoning_effort": "xhigh"}, "max"),
        ("reasoning_strength", {"reasoning_effort": "medium"}, "medium"),
        ("thinking_mode", {"reasoning_effort": "none"}, "disabled"),
        ("thinking_mode", {"chat_template_kwargs": {"enable_thinking": True}}, "enabled"),
        ("thinking_option", {"reasoning_effort": "high"}, "on"),
        ("thinking", {"chat_template_kwargs": {"enable_thinking": False}}, "False"),
        ("enable_thinking", {"chat_template_kwargs": {"thinking": False}}, "False"),
        ("thinking_budget", {"thinking_budget": 512}, "512"),
        ("thinking_budget", {"reasoning_effort": "none"}, "0"),
        ("thinking", {"reasoning_effort": "none", "chat_template_kwargs": {"thinking": True}}, "True"),
        ("tool_choice", {"tools": [TOOL], "tool_choice": "required"}, "required"),
        ("tool_choice", {"tools": [TOOL], "tool_choice": NamedTool("ferry_times")},
         "{'type': 'function', 'function': {'name': 'ferry_times'}}"),
        ("response_format", {"text_format": TextFormat(kind="json_object")}, '{"type": "json_object"}'),
        ("response_format", {"text_format": TextFormat(kind="json_schema", name="n", schema={"type": "object"})},
         '{"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": false}}'),
    ],
)  # fmt: skip
def test_parameters_reach_templates_by_the_names_that_they_read(
    render: Any, variable: str, turn: Any, value: str
) -> None:
    template = SHOWN.replace("V", variable) + "{{ tools[0].function.name if tools }}"
    shown = "ferry_times" if "tools" in turn else ""
    assert render.text(template, [USER], **turn) == f"hi|{value}{shown}"


# Images


@pytest.mark.parametrize(
    ("template", "placeholder"), [(SEES, "<|img|>"), (SYSTEM_WITHOUT_IMAGES, "<|image|>")]
)
def test_placeholders_are_found_whatever_else_an_image_changes(
    render: Any, template: str, placeholder: str
) -> None:
    features = render.with_template(template).features
    assert (features.image, features.image_text) == ("image", placeholder)
    assert features.audio is None or placeholder not in features.audio_text
