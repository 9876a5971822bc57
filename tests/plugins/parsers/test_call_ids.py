"""Ids of calls that are part of a family's prompts: what the model wrote, corrected if its prompt would be another."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import CallStarted
from gateway.generation.writers import unused_call_id
from gateway.plugins.protocols import ParserContext, ToolDefinition
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_testing.reading import feed

KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
    "<|tool_calls_section_end|>"
)
SOLAR = "<|tool_calls|><|tool_call:begin|>{}<|tool_call:name|>bash<|tool_call:args|>{}<|tool_call:end|><|calls|>"


def called(name: str, output: str, tools: Sequence[str]) -> list[tuple[str, str | None]]:
    """Names and ids of the calls, at once and by characters."""
    context = ParserContext(tools={tool: ToolDefinition(name=tool) for tool in tools}, tail="text")
    found = []
    for parts in ([output], list(output)):
        deltas = feed(MarkupFormat(BY_NAME[name]).parser(context), parts)
        found.append([(each.name, each.call_id) for each in deltas if type(each) is CallStarted])
    assert [each[0] for each in found[0]] == [each[0] for each in found[1]]
    return found[0]


@pytest.mark.parametrize(
    ("label", "arguments", "tools", "name", "call_id"),
    [
        ("functions.bash:0", "{}", ["bash", "read"], "bash", "functions.bash:0"),
        ("functions.bash:12", "{}", ["bash", "read"], "bash", "functions.bash:12"),
        ("functions_bash_2", "{}", ["bash", "read"], "bash", "functions.bash:2"),
        ("bash:1", "{}", ["bash", "read"], "bash", "functions.bash:1"),
        ("bash", "{}", ["bash", "read"], "bash", "functions.bash:0"),
        ("call00003", "{}", ["bash"], "bash", "functions.bash:0"),
        ("functions.:4", "{}", ["bash"], "bash", "functions.bash:4"),
        ("chatcmpl-tool-a1b2", "{}", ["bash"], "bash", "functions.bash:0"),
        ("call00003", "{}", ["bash", "read"], "call00003", "functions.call00003:0"),
        ("call00003", "{}", [], "call00003", "functions.call00003:0"),
        ("callback", "{}", ["bash"], "callback", "functions.callback:0"),
        ("call_1", '{"name": "bash", "a": 1}', ["bash", "read"], "bash", "functions.bash:0"),
        ("call_1", '{"name": "bash"}', ["bash"], "bash", "functions.bash:0"),
        ("call_1", '{"name": "Bob"}', ["bash"], "bash", "functions.bash:0"),
        ("call_1", '{"name": "Bob"}', ["bash", "read"], "call_1", "functions.call_1:0"),
    ],
)
def test_kimis_calls_have_ids_as_its_prompts_write_them(
    label: str, arguments: str, tools: list[str], name: str, call_id: str
) -> None:
    assert called("kimi_k2", KIMI.format(label, arguments), tools) == [(name, call_id)]


def test_kimis_ids_go_on_where_the_model_counts_anew() -> None:
    used: set[str] = set()
    made = []
    for _ in range(3):
        [(_, call_id)] = called("kimi_k2", KIMI.format("functions.bash:0", "{}"), ["bash"])
        assert call_id is not None
        made.append(unused_call_id(call_id, used))
    assert made == ["functions.bash:0", "functions.bash:1", "functions.bash:2"]


@given(st.one_of(st.from_regex(r"[a-z0-9]{10}", fullmatch=True), st.text("aZ0-_. ", max_size=12)))
def test_solar_opens_ids_are_ten_letters_and_digits(label: str) -> None:
    [(name, call_id)] = called("solar_open", SOLAR.format(label, "{}"), ["bash"])
    assert name == "bash"
    assert call_id is not None
    assert re.fullmatch("[a-z0-9]{10}", call_id)
    if re.fullmatch("[a-z0-9]{10}", label):
        assert call_id == label
