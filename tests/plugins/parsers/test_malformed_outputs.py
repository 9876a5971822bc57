"""What models get wrong, family by family: what a reader would still understand is understood."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.plugins.protocols import ParserContext, ToolDefinition
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_testing.reading import blocks, check_grammar, feed

PARAMETERS = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "n": {"type": "integer"},
        "b": {"type": "boolean"},
        "o": {"type": "object"},
    },
}
TOOLS = {
    "f": ToolDefinition(name="f", parameters=PARAMETERS),
    "g": ToolDefinition(name="g", parameters=PARAMETERS),
    "stop_all": ToolDefinition(name="stop_all"),
}
F, G = ("f", {"a": "x"}), ("g", {"n": 1})
STOP: tuple[str, dict[str, Any]] = ("stop_all", {})


def read(name: str, raw: str, *, tail: Any = "text", finish: Any = "stop") -> list[Any]:
    """What `raw` reads as, at once and character by character alike: calls as (name, arguments)."""
    found = []
    for parts in ([raw], list(raw)):
        parser = MarkupFormat(BY_NAME[name]).parser(ParserContext(tail=tail, tools=TOOLS))
        deltas = feed(parser, parts, finish)
        check_grammar(deltas, raw)
        found.append(blocks(deltas))
    assert found[0] == found[1]
    return [
        block.text if block.kind == "text"
        else {block.kind: block.text} if block.kind != "call"
        else (block.name, json.loads(block.text)) if block.whole
        else (block.name, block.text, "cut")
        for block in found[0]
    ]  # fmt: skip


DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>"
ARGUMENTS = "<|tool_call_argument_begin|>"

OUTPUTS: list[tuple[str, str, list[Any]]] = [
    # JSON that Python would take, or nearly
    ("qwen3", "<tool_call>{'name': 'f', 'arguments': {'a': 'x', 'b': True, 'n': None}}</tool_call>", [("f", {"a": "x", "b": True, "n": None})]),
    ("qwen3", '<tool_call>{"name": "f", "arguments": {"a": "x",},}</tool_call>', [F]),
    ("qwen3", '<tool_call>{"name": "f", "arguments": \'{"a": "x"}\'}</tool_call>', [F]),
    ("qwen3", '<tool_call>{"name": "f", "arguments": None}</tool_call>', [("f", {})]),
    ("qwen3", '<tool_call>\n```json\n{"name": "f", "arguments": {"a": "x"}}\n```\n</tool_call>ok', [F, "ok"]),
    ("llama3_json", "{'name': 'f', 'parameters': {'a': 'x'}}", [F]),
    ("llama3_json", "{'name': 'Ada', 'age': 36}", ["{'name': 'Ada', 'age': 36}"]),
    ("llama3_json", '{"name": "f", "parameters": {"a": "x"}}, {"name": "g", "parameters": {"n": 1}}', [F, G]),
    ("llama3_json", '{"name": "f", "parameters": {"a": "x"}}, and so on', [F, ", and so on"]),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "x",}', [F]),
    ("mistral_v3", "[TOOL_CALLS] [{'name': 'f', 'arguments': {'a': 'x'}}]", [F]),
    ("deepseek_v31", DEEPSEEK + "f<｜tool▁sep｜>{'a': 'x'}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", [F]),
    ("kimi_k2", KIMI + "functions.f:0" + ARGUMENTS + "{a: 'x'}<|tool_call_end|><|tool_calls_section_end|>", [F]),
    # the output ends by itself where only brackets, or an end marker, are missing
    ("qwen3", '<tool_call>{"name": "f", "arguments": {"a": "x"', [F]),
    ("qwen3", '<tool_call>{"name": "stop_all"', [STOP]),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "x"', [F]),
    ("mistral", "[TOOL_CALLS]stop_all", [STOP]),
    ("mistral", "[TOOL_CALLS]stop_all[ARG", [STOP]),
    ("kimi_k2", KIMI + "functions.stop_all:0", [STOP]),
    ("glm47", "<tool_call>stop_all", [STOP]),
    ("glm47", "<tool_call>stop_all</tool_c", [STOP]),
    ("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_val", [F]),
    ("qwen3_coder", "<tool_call>\n<function=stop_all", [STOP]),
    ("gemma4", '<|tool_call>call:f{a:<|"|>x<|"|>', [F]),
    ("gemma4", "<|tool_call>call:stop_all", [STOP]),
    ("pythonic", "[f(o={'k'" + " " * 70 + "'v'})]", [("f", {"o": {"k": "v"}})]),
    ("pythonic", "[f(o={'k'" + " " * 70 + "[1], 'j': 2})]", [("f", {"o": {"k": [1], "j": 2}})]),
    ("pythonic", '[f(a="x"), g(n=1', [F, G]),
    # an end marker within a value, and one that stands for the value's own end
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n</function></tool_call>\n</parameter>\n</function>\n</tool_call>ok", [("f", {"a": "</function></tool_call>"}), "ok"]),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</function>\n</tool_call>ok", [F, "ok"]),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</tool_call>\n<tool_call>\n<function=g>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>", [F, G]),
    ("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value></tool_call></arg_value>\n</tool_call>ok", [("f", {"a": "</tool_call>"}), "ok"]),
    ("gemma4", '<|tool_call>call:f{a:<|"|><tool_call|><|"|>}<tool_call|>ok', [("f", {"a": "<tool_call|>"}), "ok"]),
    ("gemma4", '<|tool_call>call:f{a:<|"|>x<|"|><tool_call|>ok', [F, "ok"]),
    ("gemma4", '<|tool_call>call:f{a:<|"|>x<tool_call|><|tool_call>call:g{n:1}<tool_call|>', [F, G]),
    ("lfm2", '<|tool_call_start|>[f(a="x"<|tool_call_end|>ok', [F, "ok"]),
    ("lfm2", '<|tool_call_start|>[f(a="x<|tool_call_end|>', [F]),
    ("lfm2", '<|tool_call_start|>[f(a="<|tool_call_end|>")]<|tool_call_end|>', [("f", {"a": "<|tool_call_end|>"})]),
    ("deepseek_v31", DEEPSEEK + 'f<｜tool▁sep｜>{"a": "x<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{"n": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>', [F, G]),
    ("kimi_k2", KIMI + 'functions.f::0' + ARGUMENTS + '{"a": "x<|tool_call_end|><|tool_calls_section_end|>ok', [F, "ok"]),
    ("kimi_k2", KIMI + 'functions.f:0' + ARGUMENTS + '{"a": "<|tool_call_end|>"}<|tool_call_end|><|tool_calls_section_end|>', [("f", {"a": "<|tool_call_end|>"})]),
    # keys without an end, or without a value
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a\nx\n</parameter>\n</function>\n</tool_call>", [F]),
    ("glm45", "<tool_call>f\n<arg_key>a\n<arg_value>x</arg_value>\n</tool_call>", [F]),
    ("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n<arg_key>n\n</tool_call>", [F]),
    ("glm45", "<tool_call>f\n<arg_key>a</arg_key>,\n<arg_value>x</arg_value>\n</tool_call>", [F]),
    # other spellings
    ("kimi_k2", '<|tool_call_section_begin|><|tool_call_begin|>functions.f:0' + ARGUMENTS + '{"a": "x"}<|tool_call_end|><|tool_call_section_end|>', [F]),
    ("minimax_m2", '<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>', [F]),
    ("pythonic", '<|python_start|>[f(a="x")]<|python_end|>', [F]),
    # special tokens that end a turn, where the engine shows them
    ("qwen3", "Hi.\n<|im_end|>", ["Hi."]),
    ("qwen3", '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call><|im_end|>', [F]),
    ("qwen3", "A turn ends with <|im_end|> there.", ["A turn ends with <|im_end|> there."]),
    ("llama3_json", '{"name": "f", "parameters": {"a": "x"}}<|eom_id|>', [F]),
    ("glm45", "It is <|begin_of_box|>42<|end_of_box|>.<|user|>", ["It is 42."]),
    ("gemma4", '<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|><|tool_response>', [F]),
    # reasoning that is closed where none is open
    ("qwen3", "</think>\n\nHi.", ["Hi."]),
    ("qwen3", "Hi.\n</think>\n\nAnd more.", ["Hi.", "And more."]),
    ("qwen3", "Write </think> at its end.", ["Write </think> at its end."]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "raw", "said"), OUTPUTS, ids=[f"{i}-{name}" for i, (name, _, _) in enumerate(OUTPUTS)]
)
def test_an_output_is_read_as_it_was_meant(name: str, raw: str, said: list[Any]) -> None:
    assert read(name, raw) == said


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("qwen3", '<tool_call>{"name": "f", "arguments": {"a": "x"'),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "x"'),
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx</param"),
        ("gemma4", '<|tool_call>call:f{a:<|"|>x<|"|>'),
        ("pythonic", '[f(a="x", n=1'),
    ],
)
def test_a_call_that_a_limit_cut_off_has_no_end(name: str, raw: str) -> None:
    (call,) = read(name, raw, finish="length")
    assert call[2] == "cut"


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("glm47", "<tool_call>f"),
        ("mistral", "[TOOL_CALLS]f"),
        ("kimi_k2", "<|tool_call_begin|>functions.f"),
        ("qwen3", '<tool_call>\n{"name": "f'),
        ("qwen3", "<tool_call>"),
        ("qwen3_coder", "<tool_call>\n<function=f"),
        ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function"),
    ],
)
def test_a_limit_before_the_name_of_a_call_leaves_no_markup(name: str, raw: str) -> None:
    assert read(name, raw, finish="length") == []
    assert read(name, "Let me see.\n\n" + raw, finish="length") == ["Let me see."]


def test_what_may_be_text_is_text_at_a_limit() -> None:
    assert read("llama3_json", '{"na', finish="length") == ['{"na']
    assert read("qwen3", "Tags such as <tool_call> are", finish="length") == [
        "Tags such as <tool_call> are"
    ]
    assert read("qwen3", "a < b <tool", finish="length") == ["a < b <tool"]
