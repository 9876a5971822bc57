"""Calls that cannot be read are shown as their inner text, without markup, and counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.plugins.protocols import ParserContext, ToolDefinition
from gateway_parsers import BY_NAME, HeaderCalls, JsonCalls, MarkupFormat, TagCalls
from gateway_parsers.kit import labels
from gateway_testing.reading import blocks, check_grammar, cut, feed

PROPERTIES = {"a": {"type": "string"}, "n": {"type": "integer"}}
TOOLS = {
    name: ToolDefinition(name=name, parameters={"type": "object", "properties": PROPERTIES})
    for name in ("f", "g")
}


def read(name: str, raw: str, *, tail: Any = "text", finish: Any = "stop") -> list[Any]:
    """What `raw` reads as, at once, by characters and in two parts alike."""
    found = []
    halves = [cut(raw, [at]) for at in range(1, len(raw), 3)]
    for parts in ([raw], list(raw), *halves):
        parser = MarkupFormat(BY_NAME[name]).parser(ParserContext(tail=tail, tools=TOOLS))
        deltas = feed(parser, parts, finish)
        check_grammar(deltas, raw)
        found.append((blocks(deltas), parser.recoveries))
    assert all(each == found[0] for each in found)
    return [
        block.text if block.kind == "text"
        else {block.kind: block.text} if block.kind != "call"
        else (block.name, json.loads(block.text)) if block.whole
        else (block.name, block.text, "cut")
        for block in found[0][0]
    ]  # fmt: skip


KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>"
ARGUMENTS = "<|tool_call_argument_begin|>"

UNREADABLE: list[tuple[str, str, list[Any]]] = [
    ("jamba", 'Look.\n <tool_calls>[\n ]{x"name": "f"}\n]</tool_calls>', ['Look.\n [\n ]{x"name": "f"}\n]']),
    ("jamba", "Look.\n <tool_calls>[]</tool_calls>\nDone", ["Look.Done"]),
    ("lfm2", "Look.\n <|tool_call_start|>[]x<|tool_call_end|> y", ["Look.\n []x y"]),
    ("qwen3", "Let me look.\n<tool_call>\nnot json at all\n</tool_call>\nDone", ["Let me look.\nnot json at all\nDone"]),
    ("qwen3", '<tool_call>\n{"name": 5}\n</tool_call>', ['{"name": 5}']),
    ("qwen3", '<tool_call>\n{"name": "f", "arguments": invalid json here}\n</tool_call>', ['{"name": "f", "arguments": invalid json here}']),
    ("qwen3_coder", "Look:\n<tool_call>\n<function=>\n<parameter=a>\nOslo\n</parameter>\n</function>\n</tool_call>\nok", ["Look:\nOslo\nok"]),
    ("qwen3_coder", "<tool_call>\n<function=a b>x</function>\n</tool_call>\n<tool_call>\n<function=f>\n</function>\n</tool_call>", ["x", ("f", {})]),
    ("kimi_k2", f'Hm.{KIMI}f g{ARGUMENTS}{{"a": 1}}<|tool_call_end|><|tool_calls_section_end|>bye', ['Hm.f g{"a": 1}bye']),
    ("kimi_k2", f'{KIMI}functions.f:0{ARGUMENTS}["a"]<|tool_call_end|><|tool_calls_section_end|>', ['functions.f:0["a"]']),
    ("mistral", '[TOOL_CALLS]{"x": 1}', ['{"x": 1}']),
    ("gemma4", "Hm <|tool_call>nonsense here<tool_call|> and more", ["Hm nonsense here and more"]),
    ("minimax_m2", '<minimax:tool_call>\n<invoke name="">\n<parameter name="a">x</parameter>\n</invoke>\n</minimax:tool_call>', ["x"]),
    ("glm45", "<tool_call>not a name\n</tool_call>then", ["not a name\nthen"]),
    ("nemotron_json", "<TOOLCALL>[nothing]</TOOLCALL>ok", ["[nothing]ok"]),
    ("kimi_k3", '<|open|>tools<|sep|><|open|>call index="1"<|sep|>x<|close|>call<|sep|><|close|>tools<|sep|>', ["x"]),
    # arguments are an object, or the call is text
    ("llama3_json", '{"name": "f", "parameters": "x"}', ['{"name": "f", "parameters": "x"}']),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": [1]}]', ['[{"name": "f", "arguments": [1]}]']),
    ("apertus", '<|tools_prefix|>[{"f": 3}]<|tools_suffix|>', ['[{"f": 3}]']),
    ("qwen3", '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"x"}</tool_call>', [("f", {"a": "x"})]),
    ("qwen3", '<tool_call>{"name": "f", "arguments": ""}</tool_call>', [("f", {})]),
    ("qwen3", '<tool_call>{"name": "f", "arguments": [ ]}</tool_call>', [("f", {})]),
    ("kimi_k2", f'{KIMI}f{ARGUMENTS}"{{\\"a\\": \\"x\\"}}"<|tool_call_end|><|tool_calls_section_end|>', [("f", {"a": "x"})]),
    # prose about calls is not a call
    ("qwen3", "Tags such as <tool_call> are used.", ["Tags such as <tool_call> are used."]),
    ("muse_glimmer", "Go to=x.", ["Go to=x."]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "raw", "said"), UNREADABLE, ids=[f"{i}-{name}" for i, (name, _, _) in enumerate(UNREADABLE)]
)  # fmt: skip
def test_an_unreadable_call_is_its_inner_text(name: str, raw: str, said: list[Any]) -> None:
    assert read(name, raw) == said


def test_it_is_counted() -> None:
    parser = MarkupFormat(BY_NAME["qwen3"]).parser(ParserContext(tail="text", tools=TOOLS))
    feed(parser, ["<tool_call>\nnot json\n</tool_call>"])
    assert parser.recoveries == 1


@pytest.mark.parametrize(
    ("name", "opener"),
    [
        ("qwen3_coder", "<tool_call>\n<function"),
        ("qwen3_coder", "<tool_call>\n<function=get_wea"),
        ("qwen3_coder", "<tool_ca"),
        ("minimax_m2", "<minimax:tool_call>\n<invok"),
        ("minimax_m2", '<minimax:tool_call>\n<invoke name="ge'),
        ("deepseek_v4", "<｜DSML｜tool_calls>\n<｜DSML｜invok"),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_be"),
        ("glm45", "<tool_call>get_weath"),
        ("lfm2", "<|tool_call_start|>[get_w"),
        ("minimax_m3", "]<]minimax[>[<tool_call>\n]<]minimax[>[<invo"),
    ],
)
def test_a_limit_within_the_opener_of_a_call_leaves_no_markup(name: str, opener: str) -> None:
    assert read(name, "Let me look.\n" + opener, finish="length") == ["Let me look."]


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("ernie45", "<response>Hi.</response><too", ["Hi."]),
        ("ernie45", "<response>Hi.</respons", ["Hi."]),
        ("hy_v3", "Checking.<tool_ca", ["Checking."]),
        ("cohere_command3", "<|START_RESPONSE|>In <co>Paris</co: 0:[1", ["In Paris"]),
        ("cohere_command3", "<|START_RESPONSE|>In <co", ["In"]),
        ("inkling", "<|content_text|>Hi<|end_message|><|message_model|>weath", ["Hi"]),
        ("kimi_k3", "Done.<|open|>too", ["Done."]),
        ("think", "<thi", []),
        ("think", "Hi <thi", ["Hi <thi"]),
        ("qwen3", "I am <3", ["I am <3"]),
        ("phi4_mini_json", "It is fun", ["It is fun"]),
        ("granite", "Here", ["Here"]),
        ("llama3_json", '{"na', ['{"na']),
    ],
)
def test_a_limit_within_a_marker_leaves_none_of_it_but_what_may_be_prose(
    name: str, raw: str, said: list[str]
) -> None:
    assert read(name, raw, finish="length") == said


def test_a_hidden_tag_within_a_call_that_cannot_be_read_keeps_the_words_apart() -> None:
    raw = "The <|START_ACTION|>is <co>Paris</co: 0:[1]>.<|END_RESPONSE|>"
    assert read("cohere_command3", raw) == ["The is Paris."]


@pytest.mark.parametrize(
    "opener", ["<tool_call>\n<function", "<tool_call>\n", "<tool_call>\n<function="]
)
def test_nor_does_a_model_that_stops_there(opener: str) -> None:
    assert read("qwen3_coder", "Let me look.\n" + opener) == ["Let me look."]


def test_a_call_quoted_in_reasoning_of_special_tokens_is_none() -> None:
    thought = 'I could write <｜DSML｜invoke name="f"> here.'
    assert read("deepseek_v4", f"{thought}</think>Hi", tail="reasoning") == [
        {"reasoning": thought}, "Hi",
    ]  # fmt: skip


LISTS = '[\n  {"name": "f", "arguments": {"a": "x"}},\n  {"name": "g", "arguments": {"n": 1}}\n]'


@pytest.mark.parametrize("name", ["json", "llama3_json", "xlam", "sarashina"])
def test_a_list_over_several_lines_leaves_no_brackets(name: str) -> None:
    assert read(name, LISTS) == [("f", {"a": "x"}), ("g", {"n": 1})]
    assert read(name, "Options: [\n1, 2]") == ["Options: [\n1, 2]"]


@pytest.mark.parametrize("calls", ["header", "json", "tags"])
def test_a_marker_that_starts_and_ends_calls_is_refused(calls: str) -> None:
    with pytest.raises(ValueError, match="'@@' both starts and ends calls"):
        match calls:
            case "header":
                HeaderCalls(call="@@", call_end="@@", label=labels.plain, head="", tail="")
            case "json":
                JsonCalls(start="@@", end="@@")
            case _:
                TagCalls(
                    start="@@", end="@@", call_open="", call_close="", key_open="<k>", value_close="</k>",
                    head="", parameter="", tail="",
                )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("kimi_k2", "Hi. <|tool_calls_section_b", ["Hi."]),
        ("kimi_k2", "Hi. <|to", ["Hi. <|to"]),
        ("lfm2", "Hi.<|tool_call_sta", ["Hi."]),
        ("minimax_m3", "Hi.\n]<]minimax[>[<too", ["Hi."]),
        ("k2_horizon", "Hi. <ifm|tool_ca", ["Hi."]),
        ("qwen3", "Write <tool_ca", ["Write <tool_ca"]),
    ],
)
def test_a_model_that_ends_within_a_special_token_leaves_none_of_it(
    name: str, raw: str, said: list[str]
) -> None:
    assert read(name, raw, finish="stop") == said


def test_special_tokens_within_reasoning_are_hidden_at_its_end() -> None:
    parser = MarkupFormat(BY_NAME["kimi_k2"]).parser(ParserContext(tail="reasoning"))
    raw = "hm<|tool_calls_section_begin|><|tool_call_begin|>functions.f"
    found = blocks(feed(parser, list(raw), "stop"))
    assert [(block.kind, block.text) for block in found] == [("reasoning", "hmfunctions.f")]
