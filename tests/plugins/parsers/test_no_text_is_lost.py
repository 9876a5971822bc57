"""Whatever a model writes is in some item: a word put anywhere into an output, but into a marker, can be found again."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.plugins.protocols import (
    CallPiece,
    OutputFormat,
    ParserContext,
    Piece,
    ReasoningPiece,
    TextPiece,
    ToolDefinition,
)
from gateway_harmony import HarmonyFormat
from gateway_parsers import BY_NAME, FORMATS, MarkupFormat
from gateway_testing.mutations import cuttings
from gateway_testing.reading import Block, blocks, check_grammar, feed

DATA = Path(__file__).parents[2] / "data"
MARKUP = re.compile(
    r"<｜tool▁call▁begin｜>function<｜tool▁sep｜>|<\|tool_call>:?call:|<\|tool_call:begin\|>[^<]*<\|tool_call:name\|>|<start_function_call>call:|<\|(?:open|close)\|>[^<]*<\|sep\|>|<\|(?:start|channel)\|>(?:(?!<\|message\|>).)*(?:<\|message\|>|\Z)| ?to=[^<]*<\|\w+\|>"
    r"|<｜tool_sep｜>[^<]*<[^>]*>|<ifm\|arg_type>[^<]*</ifm\|arg_type>|<\|plamo:begin_tool_request:plamo\|>[^<]*<[^>]*>"
    r"|(?:<\|message_model\|>|(?<![^\n]))[^<]*<\|content_\w*\|>"
    r'|"(?:type|id|tool_call_id|call_id)"\s*:\s*(?:"[^"]*"|\d+)|assistant|```\w*\n?'
    r"|[<\[][^<>\[\]\s]*[>\]]|<[^<>\n]*>|\]<\]minimax\[>\[",
    re.DOTALL,
)
"""Markers, complete tags, headers of messages, and the ids and types of calls: none of it is text."""
WORD = "zq0x"
CALLS = (
    CallPiece(
        "f", '{"a": "he said \\"hi\\", <b>x</b>", "n": 3, "o": {"k": [1, null, {"x": "y"}]}}'
    ),
    CallPiece("g", '{"b": true, "l": ["p", "q, r"], "n": -2}'),
)


@cache
def formats() -> dict[str, OutputFormat]:
    found: dict[str, OutputFormat] = {spec.name: MarkupFormat(spec) for spec in FORMATS}
    return {**found, "harmony": HarmonyFormat()}


@cache
def outputs() -> list[tuple[str, str]]:
    found = []
    for path in sorted((DATA / "outputs").glob("*.json")):
        family = json.loads(path.read_text("utf-8"))
        name = BY_NAME[family["format"]].name if family["format"] in BY_NAME else family["format"]
        found += [(name, each["output"]) for each in family["outputs"]]
    for name, output_format in formats().items():
        spec = BY_NAME.get(name)
        pieces: list[Piece] = [TextPiece("Hello there.")]
        if spec is None or spec.reasoning is not None:
            pieces.insert(0, ReasoningPiece("let me think\nof it"))
        calls = CALLS if spec is None or spec.calls is not None else ()
        found.append((name, output_format.write([*pieces, *calls], tail="text")))
    return found


def read(name: str, parts: list[str], context: ParserContext) -> list[Block]:
    deltas = feed(formats()[name].parser(context), parts)
    check_grammar(deltas, "".join(parts))
    return blocks(deltas)


@pytest.mark.parametrize("seed", range(4))
def test_a_word_anywhere_is_found_again(seed: int) -> None:
    random = Random(seed)
    tools = {name: ToolDefinition(name=name, parameters={}) for name in ("f", "g")}
    for _ in range(400):
        name, output = random.choice(outputs())
        taken = [hit.span() for hit in MARKUP.finditer(output)]
        free = [at for at in range(len(output) + 1) if not any(a < at < b for a, b in taken)]
        at = random.choice(
            free[1:] if name == "inkling" else free
        )  # whose output may start with a tool's name
        raw = output[:at] + WORD + output[at:]
        tail: Any = "unknown" if name == "harmony" else random.choice(["text", "reasoning"])
        context = ParserContext(tail=tail, tools=random.choice([tools, {}]))
        at_once = read(name, [raw], context)
        found = any(WORD in each.name + each.text for each in at_once)
        assert found, (name, tail, raw[max(0, at - 40) : at + 40], raw, at_once)
        for parts in cuttings(random, raw):
            assert read(name, parts, context) == at_once, (name, raw)


BROKEN = [
    ("deepseek_v4", '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="HEAD\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'),
    ("gigachat35", '<｜GCML｜tool_calls>\n<｜GCML｜invoke name="HEAD\n</｜GCML｜invoke>\n</｜GCML｜tool_calls>'),
    ("minimax_m2", '<minimax:tool_call>\n<invoke name="HEAD\n</invoke>\n</minimax:tool_call>'),
    ("minimax_m3", ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="HEAD]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>'),
    ("dots", '<dots_function_call>\n<invoke name="HEAD\n</invoke>\n</dots_function_call>'),
    ("qwen3_coder", "<tool_call>\n<function=HEAD\n</function>\n</tool_call>"),
    ("minicpm5", '<function name="HEAD\n</function>'),
    ("muse_glimmer", '<atem:function_calls>\n<atem:invoke name="HEAD\n</atem:invoke>\n</atem:function_calls>'),
    ("step3", '<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="HEAD\n</steptml:invoke><｜tool_calls_end｜>'),
    ("kimi_k3", '<|open|>tools<|sep|><|open|>call tool="HEAD<|close|>call<|sep|><|close|>tools<|sep|>'),
    ("cohere_command5", '<cofl:tool_calls><cofl:tool_call id="0" name="HEAD</cofl:tool_call></cofl:tool_calls>'),
    ("glm45", "<tool_call>HEAD</tool_call>"),
    ("hy_v3", "<tool_calls>\n<tool_call>HEAD</tool_call>\n</tool_calls>"),
    ("solar_open2", "<|tool_call:start|>HEAD<|tool_call:end|>"),
    ("gemma4", "<|tool_call>call:HEAD<tool_call|>"),
    ("lfm2", "<|tool_call_start|>[HEAD]<|tool_call_end|>"),
    ("qwen3", '<tool_call>{"name": "HEAD</tool_call>'),
    ("mistral", "[TOOL_CALLS]HEAD"),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.HEAD<|tool_call_end|><|tool_calls_section_end|>"),
    ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>HEAD<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "around"), BROKEN, ids=[name for name, _ in BROKEN])
@pytest.mark.parametrize(
    "head",
    ["record_item {\ncategory: Dexes\nkind: red", "record item,\ncategory: Dexes\nkind: red"],
)
def test_a_broken_header_loses_no_word(name: str, around: str, head: str) -> None:
    raw = "Hello." + around.replace("HEAD", head)
    context = ParserContext(tail="text", tools={})
    at_once = read(name, [raw], context)
    said = " ".join(f"{each.name} {each.text}" for each in at_once)
    for word in ("Hello", "record", "item", "category", "Dexes", "kind", "red"):
        assert word in said, (word, at_once)
    assert read(name, list(raw), context) == at_once


TWICE_ENCODED = [
    ("k2_horizon", '<ifm|tool_call>{"name": "f", "arguments": HERE}</ifm|tool_call>'),
    ("qwen3", '<tool_call>{"name": "f", "arguments": HERE}</tool_call>'),
    ("qwen3", '<tool_call>{"arguments": HERE, "name": "f"}</tool_call>'),
    ("qwen3", '<tool_call>[{"name": "f", "arguments": HERE}, {"name": "f", "arguments": HERE}]</tool_call>'),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": HERE}]'),
    ("mistral", "[TOOL_CALLS]f[ARGS]HERE"),
    ("llama3_json", '{"name": "f", "parameters": HERE}'),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>HERE<|tool_call_end|><|tool_calls_section_end|>"),
    ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>HERE<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
    ("solar_open", "<|tool_calls|><|tool_call:begin|>abcdefghij<|tool_call:name|>f<|tool_call:args|>HERE<|tool_call:end|>"),
    ("harmony", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>HERE<|call|>"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "around"), TWICE_ENCODED)
@pytest.mark.parametrize(
    "after", ["", "zq0x", ' zq0x {"b": 1}', "}\n", "\n```", ' "zq0x"', "}zq0x é\n"]
)
def test_what_follows_an_object_in_a_string_is_text(name: str, around: str, after: str) -> None:
    raw = around.replace("HERE", json.dumps('{"a": "x"}' + after))
    tools = {"f": ToolDefinition(name="f", parameters={"properties": {"a": {"type": "string"}}})}
    context = ParserContext(tail="unknown" if name == "harmony" else "text", tools=tools)
    at_once = read(name, [raw], context)
    calls = [json.loads(each.text) for each in at_once if each.kind == "call"]
    assert calls == [{"a": "x"}] * around.count("HERE")
    texts = [each.text for each in at_once if each.kind == "text"]
    assert [WORD in text for text in texts] == ([True] * len(calls) if WORD in after else [])
    assert read(name, list(raw), context) == at_once
