"""Calls whose arguments are text: a custom tool's input arrives whole, and a function is never called with nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.deltas import CallArgumentsDelta
from gateway.plugins.protocols import EngineOutput, ParserContext, ToolDefinition
from gateway.sdk.constraints import custom_schema
from gateway_harmony import HarmonyFormat
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_testing.mutations import cuttings
from gateway_testing.reading import Block, blocks, check_grammar, feed
from gateway_testing.server import RunningGateway, run_gateway

PATCH = '*** Begin Patch\n@@\n+ say "a": {b}, [c]\n  \\d é\n*** End Patch'
COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS = {
    "apply_patch": ToolDefinition(name="apply_patch", parameters=custom_schema(), kind="custom"),
    "bash": ToolDefinition(name="bash", parameters=COMMAND),
    "stop_all": ToolDefinition(name="stop_all"),
}
FUNCTIONS = ("bash", "stop_all")

KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>"
KIMI_END = "<|tool_call_end|><|tool_calls_section_end|>"
DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
DEEPSEEK_END = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
PLAMO = (
    "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>NAME"
    "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
)
PLAMO_END = "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>"
JSON_FAMILIES = (
    ("qwen3", "<tool_call>\n", "\n</tool_call>"), ("mistral_v3", "[TOOL_CALLS] [", "]"),
    ("hunyuan_a13b", "<tool_calls>[", "]</tool_calls>"), ("json", "", ""), ("llama3_json", "", ""),
    ("gigachat3", "<|function_call|>", ""), ("xlam", "[", "]"), ("phi4_mini_json", "functools[", "]"),
    ("internlm", "<|action_start|><|plugin|>", "<|action_end|>"), ("cohere_command3", "<|START_ACTION|>[", "]<|END_ACTION|>"),
    ("inkling", "<|content_invoke_tool_json|>", "<|end_message|>"),
)  # fmt: skip
TAG_FAMILIES = (
    ("qwen3_coder", "<tool_call>\n<function=NAME>\n", "\n</function>\n</tool_call>"),
    ("mimo", "<tool_call>\n<function=NAME>\n", "\n</function>\n</tool_call>"),
    ("seed_oss", "<seed:tool_call>\n<function=NAME>\n", "\n</function>\n</seed:tool_call>"),
    ("minimax_m2", '<minimax:tool_call>\n<invoke name="NAME">\n', "\n</invoke>\n</minimax:tool_call>"),
    ("deepseek_v4", '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="NAME">\n', "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
    ("minicpm5", '<function name="NAME">', "</function>"),
    ("kimi_k3", '<|open|>tools<|sep|><|open|>call tool="NAME" index="1"<|sep|>', "<|close|>call<|sep|><|close|>tools<|sep|>"),
    ("glm45", "<tool_call>NAME\n", "\n</tool_call>"),
    ("solar_open2", "<|tool_call:start|>NAME\n", "<|tool_call:end|>"),
    ("minimax_m3", ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="NAME">', "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"),
    ("cohere_command5", '<cofl:tool_calls><cofl:tool_call id="0" name="NAME">', "</cofl:tool_call></cofl:tool_calls>"),
)  # fmt: skip
HEADER_FAMILIES = (
    ("mistral", "[TOOL_CALLS]NAME[ARGS]", ""),
    ("kimi_k2", KIMI, KIMI_END),
    ("deepseek_v31", f"{DEEPSEEK}NAME<｜tool▁sep｜>", DEEPSEEK_END),
    ("deepseek_v3", f"{DEEPSEEK}function<｜tool▁sep｜>NAME\n```json\n", f"\n```{DEEPSEEK_END}"),
    ("plamo3", PLAMO, PLAMO_END),
    ("harmony", "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>", "<|call|>"),
)
WAYS: list[tuple[str, str, str, str]] = []
"""Formats, and what precedes and follows the text, and how it is written."""
for family, before, after in JSON_FAMILIES:
    opening = before + (
        '{"tool_name":"NAME",' if family == "cohere_command3" else '{"name":"NAME",'
    )
    arguments = "args" if family == "inkling" else "arguments"
    WAYS.append((family, opening + '"input":', "}" + after, "string"))
    WAYS.append((family, f'{opening}"{arguments}":', "}" + after, "string"))
    WAYS.append((family, f'{opening}"{arguments}":', "}" + after, "encoded"))
for family, before, after in (*TAG_FAMILIES, *HEADER_FAMILIES):
    WAYS.append((family, before, after, "text"))
    WAYS.append((family, before, after, "string"))
    WAYS.append((family, before, after, "object"))
GEMMA_INPUTS = (
    "{input:MTEXTM}",
    '{"input": MTEXTM}',
    "({input=MTEXTM})",
    "{MTEXTM}",
    "MTEXTM",
    "{TEXT}",
    "(TEXT)",
    "{input:TEXT}",
    "\nTEXT\n",
)
"""How Gemma writes a custom tool's text. M: the mark around strings."""
GEMMA_WAYS = [
    (
        family,
        start + "call:NAME" + before.replace("M", mark),
        after.replace("M", mark) + end,
        "text",
    )
    for family, start, end, mark in (
        ("gemma4", "<|tool_call>", "<tool_call|>", '<|"|>'),
        ("functiongemma", "<start_function_call>", "<end_function_call>", "<escape>"),
    )
    for before, after in (written.split("TEXT") for written in GEMMA_INPUTS)
]
WAYS += GEMMA_WAYS
WAYS.append(("apertus", '<|tools_prefix|>[{"NAME": ', "}]<|tools_suffix|>", "string"))


def written(text: str, way: str) -> str:
    match way:
        case "string":
            return json.dumps(text)
        case "object":
            return json.dumps({"input": text})
        case "encoded":
            return json.dumps(json.dumps({"input": text}))
        case _:
            return text


def read(name: str, output: str, parts: list[str] | None = None) -> list[Block]:
    tail = "unknown" if name == "harmony" else "text"
    output_format = HarmonyFormat() if name == "harmony" else MarkupFormat(BY_NAME[name])
    parser = output_format.parser(ParserContext(tail=tail, tools=TOOLS))  # type: ignore[arg-type]
    deltas = feed(parser, parts or [output])
    check_grammar(deltas, output)
    return blocks(deltas)


@pytest.mark.parametrize(
    ("name", "before", "after", "way"), WAYS, ids=[f"{i}-{way[0]}-{way[3]}" for i, way in enumerate(WAYS)]
)  # fmt: skip
def test_a_custom_tool_gets_the_text_however_it_is_written(
    name: str, before: str, after: str, way: str
) -> None:
    output = before.replace("NAME", "apply_patch") + written(PATCH, way) + after
    wanted = [Block("call", json.dumps({"input": PATCH}), "apply_patch")]
    random = Random(1)
    for parts in ([output], list(output), *cuttings(random, output)):
        found = read(name, output, parts)
        assert [(each.kind, each.name, each.whole) for each in found] == [
            ("call", "apply_patch", True)
        ]
        assert found[0].text == PATCH or json.loads(found[0].text) == json.loads(wanted[0].text)


@pytest.mark.parametrize(
    ("name", "before", "after", "way"), WAYS, ids=[f"{i}-{way[0]}-{way[3]}" for i, way in enumerate(WAYS)]
)  # fmt: skip
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_not_called_without_what_was_written_for_it(
    function: str, name: str, before: str, after: str, way: str
) -> None:
    output = before.replace("NAME", function) + written(PATCH, way) + after
    at_once = read(name, output)
    said = json.dumps([(each.name, each.text) for each in at_once])
    assert "Begin Patch" in said, at_once
    assert read(name, output, list(output)) == at_once


@pytest.mark.parametrize(("name", "before", "after", "way"), GEMMA_WAYS)
def test_the_input_of_a_custom_tool_is_streamed(
    name: str, before: str, after: str, way: str
) -> None:
    parser = MarkupFormat(BY_NAME[name]).parser(ParserContext(tail="text", tools=TOOLS))
    opening, text = before.replace("NAME", "apply_patch"), PATCH + "\n+ more" * 20
    arguments = ""
    for position, character in enumerate(opening + text):
        for delta in parser.feed(EngineOutput(text=character)):
            arguments += delta.text if isinstance(delta, CallArgumentsDelta) else ""
        assert len(arguments) >= position - len(opening) - 8
    assert text.startswith(json.loads(arguments + '"}')["input"])


TEXT = st.text(st.sampled_from("ab \n\"'\\*+-:,é🙂"), min_size=1, max_size=30).map(
    lambda text: f"*{text}*"
)


@settings(max_examples=150, deadline=None)
@given(text=TEXT, way=st.sampled_from(WAYS))
def test_any_text_arrives(text: str, way: tuple[str, str, str, str]) -> None:
    name, before, after, how = way
    output = before.replace("NAME", "apply_patch") + written(text, how) + after
    found = read(name, output)
    assert [each.kind for each in found] == ["call"], found
    assert found[0].text == text or json.loads(found[0].text) == {"input": text}


SERVED = {name: (before, after) for name, before, after, way in WAYS if way in ("text", "string")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One model for each format. It patches, or calls a function with the patch, in one output."""
    models: dict[str, Any] = {}
    for name, (before, after) in SERVED.items():
        way = (
            "text"
            if any(name == each[0] for each in (*TAG_FAMILIES, *HEADER_FAMILIES))
            else "string"
        )
        rules = [
            {
                "when": word,
                "pieces": [{"raw": before.replace("NAME", tool) + written(PATCH, way) + after}],
            }
            for word, tool in (("patch it", "apply_patch"), ("run it", "bash"))
        ]
        models[name] = {"engine": "scripted", "parser": name, "scripted": {"rules": rules}}
    with run_gateway({"models": models}, tmp_path_factory.mktemp("free-text")) as running:
        yield running


CUSTOM = {"type": "custom", "name": "apply_patch"}
FUNCTION = {"type": "function", "name": "bash", "parameters": COMMAND}


@pytest.mark.parametrize("name", sorted(SERVED))
def test_responses_and_chat_pass_the_text_on(gateway: RunningGateway, name: str) -> None:
    with gateway.client() as client:
        tools: Any = [CUSTOM, FUNCTION]
        plain = client.responses.create(model=name, input="patch it", tools=tools)
        assert [(item.type, item.input) for item in plain.output] == [("custom_tool_call", PATCH)]  # type: ignore[union-attr]
        with client.responses.stream(model=name, input="patch it", tools=tools) as stream:
            said = [
                event.delta
                for event in stream
                if event.type == "response.custom_tool_call_input.delta"
            ]
            assert "".join(said) == PATCH
            assert stream.get_final_response().output[0].input == PATCH  # type: ignore[union-attr]
        chat_tools: Any = [{"type": "custom", "custom": {"name": "apply_patch"}}]
        messages: Any = [{"role": "user", "content": "patch it"}]
        chat = client.chat.completions.create(model=name, messages=messages, tools=chat_tools)
        (call,) = chat.choices[0].message.tool_calls or ()
        assert call.custom.input == PATCH  # type: ignore[union-attr]
        called = client.responses.create(model=name, input="run it", tools=tools)
        for item in called.output:
            if item.type == "function_call":
                assert "Begin Patch" in item.arguments
        assert "Begin Patch" in called.model_dump_json()
