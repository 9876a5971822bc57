"""Details of single families, from their definitions in other servers and their chat templates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.base.deltas import TextDelta
from gateway.plugins.protocols import ModelInfo, ParserContext, ToolDefinition
from gateway_parsers import BY_NAME, MarkupFormat, compose
from gateway_parsers.spec import FormatSpec
from gateway_testing.reading import blocks, check_grammar, feed

PROPERTIES = {"a": {"type": "string"}, "n": {"type": "integer"}}
TOOLS = {
    name: ToolDefinition(name=name, parameters={"type": "object", "properties": PROPERTIES})
    for name in ("f", "get_weather")
}
TOOLS["free"] = ToolDefinition(name="free", parameters={})


def read(spec: FormatSpec, raw: str, tail: Any = "text") -> list[Any]:
    found = []
    for parts in ([raw], list(raw)):
        parser = MarkupFormat(spec).parser(ParserContext(tail=tail, tools=TOOLS))
        deltas = feed(parser, parts)
        check_grammar(deltas, raw)
        found.append(blocks(deltas))
    assert found[0] == found[1]
    return [
        block.text if block.kind == "text"
        else {block.kind: block.text} if block.kind != "call"
        else (block.name, json.loads(block.text))
        for block in found[0]
    ]  # fmt: skip


def lfm2(call: str) -> str:
    return f"<|tool_call_start|>[{call}]<|tool_call_end|>"


DETAILS: list[tuple[str, str, list[Any]]] = [
    # GLM: a value without a schema
    ("glm45", "<tool_call>free\n<arg_key>x</arg_key>\n<arg_value>None</arg_value>\n<arg_key>y</arg_key>\n<arg_value>True</arg_value>\n</tool_call>", [("free", {"x": None, "y": True})]),
    ("glm45", "<tool_call>free\n<arg_key>x</arg_key>\n<arg_value>Nonesuch</arg_value>\n</tool_call>", [("free", {"x": "Nonesuch"})]),
    ("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>None</arg_value>\n</tool_call>", [("f", {"a": "None"})]),
    # Cohere: tags around cited text
    ("cohere_command3", "<|START_RESPONSE|>The <co>tallest</co: 0:[1,2]> is <co: 0>Ada</co: 0>, in <code>x</code>.<|END_RESPONSE|>", ["The tallest is Ada, in <code>x</code>."]),
    # Inkling: a name before a content marker
    ("inkling", 'f<|content_invoke_tool_json|>{"name":"f","args":{"a":"x"}}<|end_message|>', [("f", {"a": "x"})]),
    ("inkling", '<|content_thinking|>hm<|end_message|><|message_model|>get_weather<|content_invoke_tool_json|>{"name":"get_weather","args":{}}<|end_message|>', [{"reasoning": "hm"}, ("get_weather", {})]),
    ("inkling", "Hello", ["Hello"]),
    ("inkling", "Hello there", ["Hello there"]),
    # LFM2: sets, quotation marks within strings, numbers with zeros
    ("lfm2", lfm2('free(a={"x", "y"}, b=[{1, 2}], c={"k": {"a"}, "e": {}}, d={})'), [("free", {"a": ["x", "y"], "b": [[1, 2]], "c": {"k": ["a"], "e": {}}, "d": {}})]),
    ("lfm2", lfm2("f(a='sed -n '1,9p' f.py')"), [("f", {"a": "sed -n '1,9p' f.py"})]),
    ("lfm2", lfm2("free(month=07, none=None)"), [("free", {"month": 7, "none": None})]),
    # MiniCPM 5: CDATA, parameters without a name
    ("minicpm5", '<function name="f"><param name="a"><![CDATA[if a < b && "x" </param> ]]></param><param name="n">3</param></function>ok', [("f", {"a": 'if a < b && "x" </param> ', "n": 3}), "ok"]),
    ("minicpm5", '<function name="f"><param>hi</param><param name="n">3</param></function>', [("f", {"a": "hi", "n": 3})]),
    # PLaMo: the end of a message
    ("plamo3", "Hi<|plamo:tag|>", ["Hi"]),
    # MiniCPM-V: reserved markers, and line breaks as two characters
    ("minicpmv", "One\\ntwo\\r\\nthree `a\\nb` $\\nabla$ \\\\n\\(\\nu\\)<reserved_12><|im_end|>", ["One\ntwo\nthree `a\\nb` $\\nabla$ \\\\n\\(\\nu\\)"]),
    ("minicpmv", "<think>a\\nb</think>```\n\\n```\\nc", [{"reasoning": "a\nb"}, "```\n\\n```\nc"]),
    # Sarashina: a list in Python's quotation marks; the marker may be missing
    ("sarashina", "<|tool_calls|>[{'name': 'get_weather', 'arguments': {'a': 'Tokyo'}}]", [("get_weather", {"a": "Tokyo"})]),
    ("sarashina", "[{'name': 'get_weather', 'arguments': {'a': 'Tokyo'}}]", [("get_weather", {"a": "Tokyo"})]),
    # Kimi K3: entities in attributes
    ("kimi_k3", '<|open|>tools<|sep|><|open|>call tool="free" index="1"<|sep|><|open|>argument key="&lt;q&apos;s&gt;&amp;" type="string"<|sep|>v&amp;<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>', [("free", {"<q's>&": "v&amp;"})]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "raw", "said"), DETAILS, ids=[f"{i}-{name}" for i, (name, _, _) in enumerate(DETAILS)]
)
def test_a_detail_of_a_family(name: str, raw: str, said: list[Any]) -> None:
    assert read(BY_NAME[name], raw) == said


def test_append_think_keeps_the_reasoning_in_the_text() -> None:
    spec = BY_NAME["minimax_m2_append_think"]
    assert read(spec, "hm</think>\n\nHi", "reasoning") == ["<think>hm</think>\n\nHi"]
    assert read(spec, "hm</think>Hi", "unknown") == ["<think>hm</think>Hi"]
    assert read(spec, "Hi") == ["Hi"]
    call = '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n</minimax:tool_call>'
    assert read(spec, f"hm</think>{call}", "reasoning") == ["<think>hm</think>", ("f", {"a": "x"})]


@pytest.mark.parametrize(
    "said", ["a`<reserved_12>b` \\nc", "a\\<reserved_12>nb", "``<reserved_12>`x\\ny", "a\\"]
)
def test_text_around_hidden_markup_has_its_own_offset(said: str) -> None:
    for at in range(len(said)):
        parser = MarkupFormat(BY_NAME["minicpmv"]).parser(ParserContext(tail="text"))
        check_grammar(feed(parser, [said[:at], said[at:]], "length"), said)


def test_restored_line_breaks_keep_the_offsets_of_the_rest() -> None:
    parser = MarkupFormat(BY_NAME["minicpmv"]).parser(ParserContext(tail="text"))
    deltas = feed(parser, ["ab", "\\", "ncd"])
    assert deltas == [TextDelta("ab", 0), TextDelta("\n", -1), TextDelta("cd", 4)]


HALVES: list[tuple[str, str, list[Any]]] = [
    ("glm45", "<|begin_of_box|>42<|end_of_box|>", ["42"]),
    ("glm47", "<|begin_of_box|>42<|end_of_box|>", ["42"]),
    ("minimax_m2", "Hi.[e~[", ["Hi."]),
    ("minimax_m3", "Hi.[e~[", ["Hi."]),
    ("kimi_k2", "Hi.<|tool_call_section_end|>", ["Hi."]),
    ("gemma4", "Hi.<|tool_response>", ["Hi."]),
    ("inkling", "f<|content_text|>Hi.<|end_message|>", ["Hi."]),
    ("cohere_command3", "A <co>b</co: 0:[1]>.", ["A b."]),
    ("minicpmv", "A\\nb<|im_end|>", ["A\nb"]),
    ("plamo3", "Hi<|plamo:tag|>", ["Hi"]),
]


@pytest.mark.parametrize(("name", "raw", "said"), HALVES, ids=[name for name, _, _ in HALVES])
def test_the_halves_of_a_format_know_what_it_knows(name: str, raw: str, said: list[Any]) -> None:
    assert read(BY_NAME[name], raw) == said
    assert read(compose(name, name), raw) == said
    assert read(compose(name, "hermes"), raw) == said


def test_halves_are_those_of_the_models_version() -> None:
    info = ModelInfo(name="m", engine="e", chat_template="<tool_calls:6124c78e>")
    spec = compose("hy_v3", "hy_v3", info)
    assert spec.reasoning is not None
    assert spec.reasoning.close == "</think:6124c78e>"
    raw = "<think:6124c78e>hm</think:6124c78e><tool_calls:6124c78e>\n<tool_call:6124c78e>f<tool_sep:6124c78e>\n</tool_call:6124c78e>\n</tool_calls:6124c78e>"
    assert read(spec, raw) == [{"reasoning": "hm"}, ("f", {})]


def test_append_think_may_be_the_reasoning_of_another_format() -> None:
    assert read(compose("minimax_m2_append_think", "minimax_m2"), "hm</think>Hi", "reasoning") == [
        "<think>hm</think>Hi"
    ]


DSML = (
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n<｜DSML｜parameter name="command" string="true">ls{}\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)


def test_matters_of_policy_are_read_as_the_readme_says(reading: Any) -> None:
    kimi = '<|tool_calls_section_begin|><|tool_call_begin|>{}<|tool_call_argument_begin|>{{"a": 1}}<|tool_call_end|><|tool_calls_section_end|>'
    for tools, called in ((["bash"], "bash"), (["bash", "read"], "call00003"), ([], "call00003")):
        nameless = reading.read(kimi.format("call00003"), "kimi_k2", tail="text", tools=tools)
        assert nameless == reading.call(called, '{"a": 1}')
    k3 = (
        '<|open|>tools<|sep|><|open|>call tool="bash" index="1"<|sep|><|open|>argument key="command" type="string"<|sep|>ls'
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
    )
    assert reading.read(k3, "kimi_k3", tail="text") == reading.call("bash", '{"command": "ls"}')
    ls = reading.call("bash", '{"command": "ls"}')
    whole = DSML.format("</｜DSML｜parameter>")
    assert reading.read(whole, "deepseek_v4", tail="text") == ls
    assert reading.read(DSML.format("</parameter>"), "deepseek_v4", tail="text") == ls
    draft = reading.read(
        f"So: {whole} ok</think>Hi", "deepseek_v4", tail="reasoning", tools=["bash"]
    )
    assert draft == [("reasoning", "So:"), *ls, ("text", "ok"), ("text", "Hi")]
    drafted = '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>'
    quoted = reading.read(f"So: {drafted} ok</think>Hi", "qwen3", tail="reasoning", tools=["bash"])
    assert quoted == [("reasoning", f"So: {drafted} ok"), ("text", "Hi")]
