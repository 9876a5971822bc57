"""Outputs as the families' own chat templates write them, and the ways in which models get them wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.base.deltas import CallStarted
from gateway.plugins.protocols import ParserContext, ToolDefinition
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_testing.reading import blocks, check_grammar, feed

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}},
}
TOOLS = {name: ToolDefinition(name=name, parameters=PARAMETERS) for name in ("f", "g")}


def read(name: str, raw: str, *, tail: Any = "text", finish: Any = "stop") -> list[Any]:
    """What `raw` reads as, at once and character by character alike: calls as (name, arguments)."""
    found = []
    for parts in ([raw], list(raw)):
        context = ParserContext(tail=tail, tools=TOOLS)
        deltas = feed(MarkupFormat(BY_NAME[name]).parser(context), parts, finish)
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


F, G = ("f", {"a": "x"}), ("g", {"n": 1})
HM = {"reasoning": "hm"}

OUTPUTS: list[tuple[str, str, list[Any]]] = [
    # one family after the other: name, output, what it says
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>", [F]),
    ("qwen3_coder", "<tool_call>\n<function=f>\n</function>\n</tool_call>", [("f", {})]),
    ("qwen3_coder", "<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>", [F]),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</tool_call>ok", [F, "ok"]),
    ("qwen3_coder", '<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>', [F]),
    ("qwen3_coder", '<tool_call><function=f>{"a": "x"}</function></tool_call>', [F]),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<tool_call>\n<function=g>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>", [F, G]),
    ("qwen3_coder", "<tool_call>nothing</tool_call>", ["nothing"]),
    ("qwen3_coder", "Use <function= so", ["Use <function= so"]),
    ("seed_oss", "<seed:think>hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=a>x</parameter>\n</function>\n</seed:tool_call>", [HM, F]),
    ("deepseek_v3", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": "x"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{"n": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>', [F, G]),
    ("deepseek_v3", '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{"a": "x"}<｜tool▁call▁end｜>', [F]),
    ("deepseek_v3", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": "```\\n"}\n```', [("f", {"a": "```\n"})]),
    ("deepseek_v31", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "x"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{"n": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>ok', [F, G, "ok"]),
    ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>", [("f", {})]),
    ("deepseek_v32", 'Ok\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">x</｜DSML｜parameter>\n<｜DSML｜parameter name="n" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>', ["Ok", ("f", {"a": "x", "n": 1})]),
    ("deepseek_v32", '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', [("f", {})]),
    ("deepseek_v4", 'hm</think>\n<｜DSML｜tool>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', [HM, F]),
    ("deepseek_v41", '<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n<｜DSML｜ parameter name="a" string="true">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>', [F]),
    ("kimi_k2", '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "x"}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{"n": 1}<|tool_call_end|><|tool_calls_section_end|>', [F, G]),
    ("kimi_k2", "<|tool_calls_section_begin|>\n<|tool_call_begin|> functions.f:0 <|tool_call_argument_begin|> <|tool_call_end|><|tool_calls_section_end|>", [("f", {})]),
    ("kimi_k2", '<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|>[1]<|tool_call_end|><|tool_calls_section_end|>', ["f[1]"]),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>ok", ["ok"]),
    ("kimi_k3", '<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>Ok<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="string"<|sep|>x<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>', [HM, "Ok", F]),
    ("kimi_k3", '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>json type="object"<|sep|>{"a": "x"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>', [F]),
    ("kimi_k3", "Hi<|close|>response<|sep|><|close|>message<|sep|>", ["Hi"]),
    ("glm45", "<think>hm</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>\n<tool_call>g\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", [HM, F, G]),
    ("glm45", "<tool_call>f\n</tool_call>", [("f", {})]),
    ("glm45", "<tool_call>f</tool_call>", [("f", {})]),
    ("glm45", "<tool_call>\nf\n<arg_key> a </arg_key><arg_value>x</tool_call>", [F]),
    ("glm45", '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>', [F]),
    ("glm45", "<tool_call>not a name\n</tool_call>", ["not a name"]),
    ("glm47", "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></tool_call><tool_call>g<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>", [F, G]),
    ("hy_v3", "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>\n<tool_call>g<tool_sep>\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n</tool_calls>", [F, G]),
    ("minimax_m2", '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n<invoke name=\'g\'>\n<parameter name=n>1</parameter>\n</invoke>\n</minimax:tool_call>', [F, G]),
    ("minimax_m3", ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<a>x]<]minimax[>[</a>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>', [F]),
    ("step3", '<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f">\n<steptml:parameter name="a">x</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>', [F]),
    ("minicpm5", '<function name="f"><param name="a">x</param></function>\n<function name="g"><param name="n">1</param></function>', [F, G]),
    ("dots", '<dots_function_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n</dots_function_call>', [F]),
    ("k2_horizon", "<ifm|tool_calls>\n<ifm|tool_call>f\n<ifm|arg_key>a</ifm|arg_key>\n<ifm|arg_value>x</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls>", [F]),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "x"}[TOOL_CALLS]g[ARGS]{"n": 1}', [F, G]),
    ("mistral", '[TOOL_CALLS]f{"a": "x"}ok', [F, "ok"]),
    ("mistral", '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": "x"}', [F]),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {"n": 1}}]', [F, G]),
    ("mistral", '[TOOL_CALLS]{"name": "f", "arguments": {"a": "x"}}', [F]),
    ("mistral", "[THINK]hm[/THINK]Hi [INST]", [HM, "Hi [INST]"]),
    ("mistral", "[TOOL_CALLS]f[TOOL_CALLS]g[ARGS]{\"n\": 1}", [("f", {}), G]),
    ("mistral_v3", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "x"}}]', [F]),
    ("gemma4", '<|channel>thought\nhm<channel|>Ok<|tool_call>call:f{a:<|"|>x<|"|>,o:{k:[1,<|"|>}<|"|>,null]}}<tool_call|>', [HM, "Ok", ("f", {"a": "x", "o": {"k": [1, "}", None]}})]),
    ("gemma4", "<|tool_call>call:f{}<tool_call|><|tool_call>:g{n:1}<tool_call|>", [("f", {}), G]),
    ("gemma4", "<|tool_call>call:f{a:x, n:<|\"|>1<|\"|>}}<tool_call|>", [("f", {"a": "x", "n": 1})]),
    ("gemma4", "<|channel>thought\n<channel|>Hi", ["Hi"]),
    ("functiongemma", "<start_function_call>call:f{a:<escape>x<escape>,n:1}<end_function_call>", [("f", {"a": "x", "n": 1})]),
    ("llama3_json", '{"name": "f", "parameters": {"a": "x"}}', [F]),
    ("llama3_json", '<|python_tag|>{"name": "f", "parameters": {"a": "x"}}; {"name": "g", "parameters": {"n": 1}}', [F, G]),
    ("llama3_json", '{"name": "f", "parameters": {"a": "x"}}; {"name": "g", "parameters": {"n": 1}}', [F, G]),
    ("llama3_json", 'Sure: {"name": "f", "parameters": {"a": "x"}}', ["Sure:", F]),
    ("llama3_json", '{"type": "function", "function": {"name": "f", "parameters": {"a": "x"}}}', [F]),
    ("llama3_json", '{"name": "Ada", "age": 36}', ['{"name": "Ada", "age": 36}']),
    ("llama3_json", '{"answer": [1, 2]}', ['{"answer": [1, 2]}']),
    ("llama3_json", '{"name": "other", "parameters": {}}', [("other", {})]),
    ("llama3_json", 'the JSON {"name": "other", "parameters": {}}', ['the JSON {"name": "other", "parameters": {}}']),
    ("pythonic", '[f(a="x"), g(n=1)]', [F, G]),
    ("pythonic", "Let me look.\n[f(a='x')]", ["Let me look.", F]),
    ("pythonic", "[f(a='x', o={'k': (1, None, True), 2: \"it's\"})]", [("f", {"a": "x", "o": {"k": [1, None, True], "2": "it's"}})]),
    ("pythonic", "[f(a='sed -n '1,9p' x')]", [("f", {"a": "sed -n '1,9p' x"})]),
    ("pythonic", '[f("x", 1)]', [("f", {"a": "x", "n": 1})]),
    ("pythonic", '[f({"a": "x"})]', [F]),
    ("pythonic", "[f()]", [("f", {})]),
    ("pythonic", "[see](https://x) [1] [f]", ["[see](https://x) [1] [f]"]),
    ("pythonic", "[f(a='''x\n'y' ''')]", [("f", {"a": "x\n'y' "})]),
    ("pythonic", '[f(a="\\x41\\u00e9\\n\\q")]', [("f", {"a": "Aé\n\\q"})]),
    ("llama4_pythonic", '<|python_start|>[f(a="x", n="1")]<|python_end|>', [("f", {"a": "x", "n": 1})]),
    ("llama4_pythonic", '[f(a="x")]', [F]),
    ("lfm2", '<|tool_call_start|>[f(a="x"), g(n=1)]<|tool_call_end|>ok', [F, G, "ok"]),
    ("lfm2", '<|tool_call_start|>[{"name": "f", "arguments": {"a": "x"}}]<|tool_call_end|>', [F]),
    ("olmo3", 'hm</think>\n<function_calls>f(a="x")\ng(n=1)</function_calls>', [HM, F, G]),
    ("cohere_command3", '<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>', [HM, "Hi"]),
    ("cohere_command4", '<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": "x"}},\n    {"tool_call_id": "1", "tool_name": "g", "parameters": {"n": 1}}\n]<|END_ACTION|>', [HM, F, G]),
    ("cohere_command5", '<|START_THINKING|>hm<|END_THINKING|><cofl:tool_calls><cofl:tool_call id="0" name="f"><cofl:value name="a" type="raw">x</cofl:value></cofl:tool_call><cofl:tool_call id="1" name="g"><cofl:value name="n" type="json">1</cofl:value></cofl:tool_call></cofl:tool_calls>', [HM, F, G]),
    ("cohere_command5", '<cofl:tool_calls><cofl:tool_call id="0" name="f"><cofl:value name="o &quot;&lt;" type="dict"><cofl:value name="l" type="list"><cofl:value type="raw">5 < 6 &amp; <b></cofl:value><cofl:value type="json">null</cofl:value><cofl:value type="list"></cofl:value></cofl:value><cofl:value name="e" type="dict"></cofl:value></cofl:value></cofl:tool_call></cofl:tool_calls>', [("f", {'o "<': {"l": ["5 < 6 &amp; <b>", None, []], "e": {}}})]),
    ("cohere_command5", '<cofl:tool_calls><cofl:tool_call id="0" name="f"><cofl:value name="a" type="raw"><cofl:</cofl:value><cofl:value name="o" type="dict"><cofl:value name="k" type="raw"><cofl:value name="q" type="raw">in</cofl:value> </cofl:x></cofl:value></cofl:value></cofl:tool_call></cofl:tool_calls>', [("f", {"a": "<cofl:", "o": {"k": '<cofl:value name="q" type="raw">in</cofl:value> </cofl:x>'}})]),
    ("cohere_command5", '<cofl:tool_call id="0" name="f"><cofl:value name="a" type="raw">x</cofl:tool_call><|START_TEXT|>Hi<|END_TEXT|>', [F, "Hi"]),
    ("granite", "Here is my thought process:\nhm\n\nHere is my response:\nHi", [HM, "Hi"]),
    ("granite", "Here's my thought process: hm Here's my response: Hi", [HM, "Hi"]),
    ("granite", '<|tool_call|> [{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {"n": 1}}]', [F, G]),
    ("granite", '<tool_call>[{"name": "f", "arguments": {"a": "x"}}]', [F]),
    ("granite-20b-fc", '<function_call> {"name": "f", "arguments": {"a": "x"}}\n<function_call> {"name": "g", "arguments": {"n": 1}}', [F, G]),
    ("hunyuan_a13b", "<think>\nhm\n</think>\n<answer>\nHi\n</answer>", [HM, "Hi"]),
    ("hunyuan_a13b", '<tool_calls>[{"name": "f", "arguments": {"a": "x"}}]</tool_calls>', [F]),
    ("hunyuan_a13b", "助手：Hi </answer>", ["Hi"]),
    ("internlm", 'Ok<|action_start|><|plugin|>\n{"name": "f", "parameters": {"a": "x"}}<|action_end|>', ["Ok", F]),
    ("phi4_mini_json", 'functools[{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {"n": 1}}]', [F, G]),
    ("phi4_mini_json", "import functools\nfunctools[1]", ["import functools\nfunctools[1]"]),
    ("ernie45", 'hm\n</think>\n\n<response>\nHi\n</response>\n', [HM, "Hi"]),
    ("ernie45", 'hm\n</think>\n\n\n<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>\n', [HM, F]),
    ("longcat", '<longcat_think>\nhm\n</longcat_think>\n<longcat_tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</longcat_tool_call>', [HM, F]),
    ("inkling", '<|message_model|><|content_thinking|>hm<|end_message|><|message_model|><|content_text|>Hi<|end_message|><|message_model|><|content_invoke_tool_json|>{"name":"f","args":{"a":"x"}}<|end_message|><|content_model_end_sampling|>', [HM, "Hi", F]),
    ("apertus", '<|inner_prefix|>hm<|inner_suffix|>Hi<|tools_prefix|>[{"f": {"a": "x"}}, {"g": {"n": 1}}]<|tools_suffix|>', [HM, "Hi", F, G]),
    ("xlam", '[{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {"n": 1}}]', [F, G]),
    ("xlam", '<think>hm</think>\n```json\n[{"name": "f", "arguments": {"a": "x"}}]\n```', [HM, F]),
    ("xlam", "```python\nx = [1]\n```", ["```python\nx = [1]\n```"]),
    ("gigachat3", 'function call<|role_sep|>\n{"name": "f", "arguments": {"a": "x"}}', [F]),
    ("jamba", '<tool_calls>[\n    {"name": "f", "arguments": "{\\"a\\": \\"x\\"}"}\n]</tool_calls>', [F]),
    ("nemotron_json", '<TOOLCALL>[{"name": "f", "arguments": {"a": "x"}}]</TOOLCALL>', [F]),
    ("plamo3", '<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"a": "x"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>', [F]),
    ("kimi", "◁think▷hm◁/think▷Hi", [HM, "Hi"]),
    ("interns1", '<think>hm</think>Ok<|action_start|><|plugin|>\n{"name": "f", "parameters": {"a": "x"}}\n<|action_end|>', [HM, "Ok", F]),
    ("hy_v4", "<tool_calls><tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></tool_call><tool_call>g<arg_key>n</arg_key><arg_value>1</arg_value></tool_call></tool_calls>", [F, G]),
    ("gigachat35", 'Ok<｜GCML｜tool_calls>\n<｜GCML｜invoke name="f">\n<｜GCML｜parameter name="a" string="true">x</｜GCML｜parameter>\n</｜GCML｜invoke>\n<｜GCML｜invoke name="g">\n<｜GCML｜parameter name="n" string="false">1</｜GCML｜parameter>\n</｜GCML｜invoke>\n</｜GCML｜tool_calls>', ["Ok", F, G]),
    ("solar_open2", "<|think:start|>hm<|think:end|>Ok<|tool_call:start|>f\n<|tool_arg:start|>a<|tool_arg:value|>x<|tool_arg:end|>\n<|tool_call:end|>", [HM, "Ok", F]),
    ("telechat4", "<tool_call>f<param_key>a</param_key><param_value>x</param_value></tool_call>", [F]),
    ("telechat4", '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>', [F]),
    ("muse_glimmer", ' to=self<|message|>hm<|eom|><|start|>assistant to=f.f<|message|>\n<atem:function_calls>\n<atem:invoke name="f.f">\n<atem:parameter name="a">x</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=user<|message|>Go to=x.<|eot|>', [HM, F, "Go to=x."]),
    ("muse_glimmer", ' to=self<|message|>hm to=g<|message|><atem:function_calls><atem:invoke name="g"><atem:parameter name="n">1</atem:parameter></atem:invoke></atem:function_calls><|eot|>', [HM, G]),
    ("muse_glimmer", "<|message|>Hi<|eot|>", ["Hi"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "raw", "said"), OUTPUTS, ids=[f"{i}-{name}" for i, (name, _, _) in enumerate(OUTPUTS)]
)
def test_an_output_says(name: str, raw: str, said: list[Any]) -> None:
    tail = "reasoning" if raw.startswith("hm") else "text"
    assert read(name, raw, tail=tail) == said


def started(name: str, raw: str) -> list[CallStarted]:
    deltas = feed(MarkupFormat(BY_NAME[name]).parser(ParserContext(tools=TOOLS)), [raw])
    return [delta for delta in deltas if isinstance(delta, CallStarted)]


def test_kimi_k2_gives_a_call_the_id_that_its_template_shows() -> None:
    """What the model wrote, with the prefix and the index if it left them out."""

    def call(head: str) -> str:
        return f"<|tool_call_begin|>{head}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"

    raw = call("functions.f:0") + call("functions.a.b:12") + call("g:1") + call("f")
    found = [(each.name, each.call_id) for each in started("kimi_k2", raw)]
    assert found == [
        ("f", "functions.f:0"),
        ("a.b", "functions.a.b:12"),
        ("g", "functions.g:1"),
        ("f", "functions.f:0"),
    ]


def test_mistral_gives_every_call_an_id_of_nine_letters_and_digits() -> None:
    raw = "[TOOL_CALLS]f[ARGS]{}" * 3 + '[TOOL_CALLS] [{"name": "g", "arguments": {}}]'
    ids = [each.call_id or "" for each in started("mistral", raw)]
    assert len(set(ids)) == 4
    assert all(len(each) == 9 and each.isalnum() for each in ids)
    (call,) = started("mistral", "[TOOL_CALLS]f[CALL_ID]abcdef123[ARGS]{}")
    assert call.call_id == "abcdef123"


def test_a_call_inside_unclosed_thinking_must_be_one_of_an_offered_tool_where_prose_may_look_like_one() -> (
    None
):
    for name, call in (
        ("glm45", "<tool_call>{}\n</tool_call>"),
        ("qwen3_coder", "<tool_call>\n<function={}>\n</function>\n</tool_call>"),
    ):
        known = read(name, "hm\n" + call.format("f"), tail="reasoning")
        assert known == [HM, ("f", {})]
        unknown = "hm\n" + call.format("other")
        assert read(name, unknown, tail="reasoning") == [{"reasoning": unknown}]


def test_a_call_in_special_tokens_ends_thinking_whatever_it_calls() -> None:
    raw = "hm<|tool_call_begin|>functions.other:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert read("kimi_k2", raw, tail="reasoning") == [HM, ("other", {})]
    assert read("mistral", "[THINK]hm[TOOL_CALLS]other[ARGS]{}") == [HM, ("other", {})]
    raw = '<minimax:tool_call><invoke name="other"></invoke></minimax:tool_call>'
    assert read("minimax_m2", "hm" + raw, tail="reasoning") == [HM, ("other", {})]


def test_a_limit_leaves_a_call_without_its_end() -> None:
    for name, raw, said in (
        ("kimi_k2", '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "x', '{"a": "x'),
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx", '{"a": "x'),
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=n>\n1", '{"n": '),
        ("gemma4", '<|tool_call>call:f{a:<|"|>x', '{"a": "x'),
        ("pythonic", '[f(a="x', '{"a": "x'),
        ("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x", '{"a": "x'),
    ):  # fmt: skip
        assert read(name, raw, finish="length") == [("f", said, "cut")]


def test_a_stop_behind_the_last_value_ends_the_call() -> None:
    for name, raw in (
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n"),
        ("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n"),
        ("minimax_m2", '<minimax:tool_call><invoke name="f"><parameter name="a">x</parameter>'),
        ("pythonic", '[f(a="x"'),
    ):
        assert read(name, raw) == [F]
