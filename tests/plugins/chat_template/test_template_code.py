"""What is compiled of a template, and of chains of texts, gives what Jinja gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway_chat_template.environment import Template
from gateway_chat_template.marked_text import (
    AssistantText,
    KeptObject,
    OutsideText,
    concat,
    mark_outside,
    parts_of,
)

TEXTS = st.text("ab", max_size=3).flatmap(
    lambda text: st.sampled_from([text, OutsideText(text), AssistantText(text)])
)
MARKED = st.recursive(TEXTS, lambda each: st.tuples(each, each).map(concat), max_leaves=4)

VALUES: list[Any] = [
    {},
    {"a": "x", "items": "y", "index": 1, "get": 2},
    {"a": None},
    {"a": {"a": "z"}},
    KeptObject(a="x", items="y", texts="t"),
    KeptObject(),
    ["a"],
    "text",
    "",
    3,
    None,
    True,
]
SOURCES = [
    "{{ x.a }}",
    "{{ x.a.a }}|{{ x.a or 'none' }}|{{ x.a is defined }}|{{ x.texts is defined }}",
    "{{ x.items is callable }}|{{ x.get is callable }}|{{ x.__class__ is defined }}|{{ x['a'] }}",
    "{% for y in [x, x, missing] %}{{ y.a }}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.previtem is defined }}"
    "{{ loop.nextitem is defined }}{{ loop.cycle('p', 'q') }}{{ loop._length is defined }}{{ loop.a is defined }}{% endfor %}",
    "{% set y = x %}{% if y %}{{ y.index }}{{ y.count is callable }}{% endif %}{{ z.a is defined }}",
    "{% autoescape true %}{{ '<' }}{{ x.a }}{% endautoescape %}",
    "{% macro m(y) %}{{ y.a }}-{% endmacro %}{{ m(x) }}{{ m(none) }}{% set n = namespace(a=1) %}{{ n.a }}",
]


@given(MARKED, MARKED)
def test_two_texts_are_added_as_many_are(first: str, second: str) -> None:
    assert parts_of(first + second) == parts_of(concat((first, second)))


@given(st.lists(MARKED, max_size=5))
def test_a_chain_of_texts_keeps_every_origin(texts: list[str]) -> None:
    chain = ""
    for text in texts:
        chain = chain + text
    assert parts_of(chain) == parts_of(concat(texts))


@pytest.mark.parametrize("source", SOURCES)
def test_attributes_are_those_that_jinja_finds(source: str) -> None:
    compiled = Template(source)
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source)

    @settings(deadline=None, max_examples=60)
    @given(st.sampled_from(VALUES))
    def holds(value: Any) -> None:
        expected = outcome(lambda: plain.render(x=value))
        marked = value if isinstance(value, KeptObject) else mark_outside(value)
        assert outcome(lambda: compiled.render({"x": value}, limit=1000)) == expected
        assert outcome(lambda: compiled.render({"x": marked}, limit=1000)) == expected

    holds()


def outcome(render: Any) -> Any:
    try:
        return "".join(text for text, _ in parts_of(render()))
    except Exception as error:
        return type(error)
