"""Prompts of well-behaved templates: exactly what Transformers and vLLM make, which pass on the messages of Chat Completions."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.answers.chat.items import items_of
from gateway.plugins.protocols import ToolDefinition, Turn
from gateway.wire.chat import decode_chat_request
from gateway_scripted.chatml import CHAT_TEMPLATE

HEADERS = """
{{- bos_token -}}
{%- if tools %}<|tools|>{% for t in tools %}{{ t | tojson(indent=2) }}{% endfor %}<|end|>{% endif -%}
{%- for m in messages -%}
<|{{ 'model' if m.role == 'assistant' else m.role }}|>
{%- if m.reasoning_content and loop.index0 > 0 %}<think>{{ m.reasoning_content | trim }}</think>{% endif -%}
{%- if m.content is string %}{{ m.content | trim }}
{%- elif m.content %}{% for p in m.content %}{{ p.text }}{{ '\n' if not loop.last }}{% endfor %}{% endif -%}
{%- for c in m.tool_calls or [] -%}
[CALL]{{ c.function.name }}{% for k, v in c.function.arguments | dictsort %}<{{ k }}>{{ v if v is string else v | tojson }}{% endfor %}
{%- endfor -%}
<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|model|>{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif -%}
"""
"""Reads arguments as objects, trims, and writes a line break between parts."""
TEMPLATES = {"chatml": CHAT_TEMPLATE, "headers": HEADERS}


def reference(source: str, request: dict[str, Any]) -> str:
    """The prompt as Transformers renders it: the request's own messages, with arguments as objects."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(
        value, ensure_ascii=False, indent=indent
    )
    messages = json.loads(json.dumps(request["messages"]))
    for call in chain.from_iterable(each.get("tool_calls", ()) for each in messages):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return environment.from_string(source).render(
        messages=messages,
        tools=request.get("tools"),
        documents=None,
        add_generation_prompt=True,
        bos_token="<bos>",
        eos_token="<eos>",
        **request.get("chat_template_kwargs", {}),
    )


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PARTS = st.lists(WORDS.map(lambda text: {"type": "text", "text": text}), min_size=2, max_size=3)
CONTENT = WORDS | PARTS
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["quay", "limit", "at"]), VALUES, max_size=3)


@st.composite
def called(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A message with calls, and their results."""
    calls = [
        {
            "id": f"call{index:05}",
            "type": "function",
            "function": {"name": "ferry_times", "arguments": json.dumps(each, ensure_ascii=False)},
        }
        for index, each in enumerate(draw(st.lists(ARGUMENTS, min_size=1, max_size=2)))
    ]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": draw(st.none() | st.just("") | WORDS),
        "tool_calls": calls,
    }
    if draw(st.booleans()):
        message["reasoning_content"] = draw(WORDS)
    results = [
        {"role": "tool", "tool_call_id": each["id"], "content": draw(WORDS)} for each in calls
    ]
    return [message, *results]


SAID = st.one_of(
    st.builds(lambda role, said: [{"role": role, "content": said}], st.sampled_from(["user", "system"]), CONTENT),
    st.builds(lambda said: [{"role": "assistant", "content": said}], CONTENT),
    st.builds(lambda said, thought: [{"role": "assistant", "content": said, "reasoning_content": thought}], WORDS, WORDS),
    called(),
)  # fmt: skip
TOOL = {
    "name": "ferry_times",
    "description": "Departures of a <ferry>.",
    "parameters": {"type": "object", "properties": {"quay": {"type": "string"}}},
}
REQUESTS = st.fixed_dictionaries(
    {"messages": st.lists(SAID, min_size=1, max_size=5).map(lambda said: list(chain(*said)))},
    optional={
        "tools": st.sampled_from([None, False, True]).map(
            lambda strict: [
                {
                    "type": "function",
                    "function": TOOL if strict is None else {**TOOL, "strict": strict},
                }
            ]
        ),
        "tool_choice": st.just("none"),
        "chat_template_kwargs": st.booleans().map(lambda thinks: {"enable_thinking": thinks}),
    },
)


@settings(max_examples=30, deadline=None)
@given(request=REQUESTS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_prompt_is_what_the_template_makes_of_the_messages(
    render: Any, template: str, request: dict[str, Any]
) -> None:
    decoded = decode_chat_request(json.dumps({"model": "m", **request}).encode())
    turn = Turn(
        items=items_of(decoded.messages).items,
        tools=[ToolDefinition(**tool["function"]) for tool in request.get("tools", ())],
        tool_choice=request.get("tool_choice", "auto"),
        chat_template_kwargs=request.get("chat_template_kwargs", {}),
    )
    source = TEMPLATES[template]
    assert render.cached(source).render_text(turn) == reference(source, request)
