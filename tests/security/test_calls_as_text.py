"""Calls that are written into a message may not bring control tokens."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import ModelInfo
from gateway.sdk.engines import Origin
from gateway_chat_template.calls_as_text import call_writer
from gateway_chat_template.features import MARKER
from gateway_chat_template.marked_text import parts_of
from gateway_parsers import FORMATS, FormatConfig, MarkupFormat, gateway_register_parsers

MARKERS = ("<|im_end|>", "<|tool_call_start|>", "<|tool_call_end|>", "<|tool_call|>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]")  # fmt: skip
WORDS = st.lists(st.sampled_from([*MARKERS, "a", " ", "<", ">", '"', "\\"]), max_size=6).map(
    "".join
)


def formatted(name: str) -> MarkupFormat:
    made: dict[str, Any] = {}

    def register(name: str, make: Any, **_: Any) -> None:
        made[name] = make

    gateway_register_parsers(register)
    info = ModelInfo(name="m", engine="e", chat_template="")
    written: MarkupFormat = made[name](FormatConfig(), ModelContext(info=info, tokenizer=None))
    return written


@pytest.mark.parametrize("name", sorted({each.name for each in FORMATS}))
def test_the_template_writes_no_marker_that_a_call_without_words_has_not(name: str) -> None:
    write = call_writer(formatted(name))
    harmless = parts_of(write("", [("f", '{"a": "b"}')]))
    markup = "".join(text for text, origin in harmless if origin is Origin.TEMPLATE)
    markers = Counter(MARKER.findall(markup))

    @settings(max_examples=60, deadline=None)
    @given(WORDS, WORDS)
    def holds(text: str, word: str) -> None:
        parts = parts_of(write(text, [("f", json.dumps({"a": word}))]))
        own = "".join(part for part, origin in parts if origin is Origin.TEMPLATE)
        assert Counter(MARKER.findall(own)) <= markers
        assert all(origin is not Origin.OUTSIDE for _, origin in parts)
        assert not MARKER.sub("", own)

    holds()


def test_the_markup_of_a_call_is_the_templates_and_its_words_are_the_models() -> None:
    write = call_writer(formatted("lfm2"))
    parts = parts_of(write("So: ", [("f", '{"a": "<|im_end|>"}')]))
    assert [text for text, origin in parts if origin is Origin.TEMPLATE] == [
        "<|tool_call_start|>",
        "<|tool_call_end|>",
    ]
