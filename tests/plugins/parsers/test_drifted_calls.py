"""Calls in another syntax than their format's, and markers that models misplace: what was meant is read, however it is cut."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from gateway.plugins.protocols import ParserContext, Tail, ToolDefinition
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_testing.mutations import cuttings
from gateway_testing.reading import blocks, check_grammar, feed

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
}
UNION = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": kind[0]}, "v": {"type": kind}}}
        for kind in ("string", "integer")
    ]
}
TOOLS = {
    "get_weather": ToolDefinition(name="get_weather", parameters=WEATHER),
    "bash": ToolDefinition(name="bash", parameters={"type": "object", "properties": {"command": {"type": "string"}}}),
    "pick": ToolDefinition(name="pick", parameters=UNION),
    "odd": ToolDefinition(name="odd", parameters={"type": "object", "properties": {"a>b": {"type": "string"}}}),
}  # fmt: skip
OSLO = ("get_weather", {"city": "Oslo", "days": 3})
LS = ("bash", {"command": "ls"})
TAGS = (
    ("glm45", "<tool_call>", "</tool_call>"),
    ("glm47", "<tool_call>", "</tool_call>"),
    ("iquest_q1", "<iquest_tool_call>", "</iquest_tool_call>"),
    ("hy_v3", "<tool_calls>\n<tool_call>", "</tool_call>\n</tool_calls>"),
    ("telechat4", "<tool_call>", "</tool_call>"),
    ("k2_horizon", "<ifm|tool_calls>\n<ifm|tool_call>", "</ifm|tool_call>\n</ifm|tool_calls>"),
    ("solar_open2", "<|tool_call:start|>", "<|tool_call:end|>"),
    ("qwen3_coder", "<tool_call>\n<function=", "></function>\n</tool_call>"),
    ("seed_oss", "<seed:tool_call>\n<function=", "></function>\n</seed:tool_call>"),
)
KEYWORDS = (
    'get_weather(city="Oslo", days=3)',
    "get_weather(city='Oslo', days=3)",
    'get_weather city="Oslo" days=3',
    'get_weather city="Oslo", days="3"',
    "get_weather city=Oslo days=3",
)
CASES: list[tuple[str, Tail, str, list[Any]]] = [
    (name, "text", f"{before}{written}{after}", [OSLO])
    for name, before, after in TAGS
    for written in KEYWORDS
]
CASES += [
    ("glm45", "text", "<tool_call>get_weather\ncity: Oslo\ndays: 3\n</tool_call>", [OSLO]),
    ("glm45", "text", "<tool_call>get_weather for Oslo</tool_call>", ["get_weather for Oslo"]),
    ("glm45", "text", '<tool_call>get_weather(town="Oslo")</tool_call>', ['get_weather(town="Oslo")']),
    ("mistral", "text", '[TOOL_CALLS]get_weather[ARGS](city="Oslo", days=3)', [OSLO]),
    ("deepseek_v31", "text", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>city: Oslo\ndays: 3<｜tool▁call▁end｜><｜tool▁calls▁end｜>", [OSLO]),
]  # fmt: skip
for open_tag, key, close_tag in (
    ("<function=bash>", '<parameter name="command">', "</function>"),
    ('<function name="bash">', '<parameter name="command">', "</function>"),
    ('<function name="bash">', "<parameter=command>", "</function>"),
    ('<invoke name="bash">', '<parameter name="command">', "</invoke>"),
):
    for name, tag in (("qwen3_coder", "tool_call"), ("seed_oss", "seed:tool_call")):
        written = f"<{tag}>\n{open_tag}\n{key}ls</parameter>\n{close_tag}\n</{tag}>"
        CASES.append((name, "text", written, [LS]))
        CASES.append((name, "text", f"{written}\n{written}\nok", [LS, LS, "ok"]))
K3_CALL = '<|open|>call tool="bash" index="1"<|sep|><|open|>argument key="command" type="string"<|sep|>ls<|close|>argument<|sep|><|close|>call<|sep|>'
for end in ("<|sep|>", "\n", ""):
    for tag in ("think", "message", "response"):
        CASES.append(("kimi_k3", "reasoning", f"Hm.<|close|>{tag}{end}", ["Hm."]))
        CASES.append(("kimi_k3", "text", f"Hm.<|close|>{tag}{end}", ["Hm."]))
    CASES.append(("kimi_k3", "reasoning", f"Hm.<|close|>think{end}<|open|>response<|sep|>Hi", ["Hm.", "Hi"]))  # fmt: skip
CASES += [
    ("kimi_k3", "reasoning", "Hm.<|close|>think\n<|open|>response\nHi<|close|>response\n<|close|>message\n<|end_of_msg|>", ["Hm.", "Hi"]),
    ("kimi_k3", "reasoning", '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>Hm.<|close|>think<|sep|>Hi', ["Hm.", "Hi"]),
    ("kimi_k3", "text", K3_CALL, [LS]),
    ("kimi_k3", "text", f"Ok.{K3_CALL}{K3_CALL}<|close|>message<|sep|>", ["Ok.", LS, LS]),
    ("kimi_k3", "text", f"<|open|>tools<|sep|>{K3_CALL}<|close|>tools<|sep|>".replace("<|sep|>", "\n"), [LS]),
]  # fmt: skip
for kind, value in (("s", "12"), ("i", 12)):
    for order in (1, -1):
        members = [("kind", kind), ("v", value)][::order]
        pick = ("pick", dict(members))
        python = "pick(" + ", ".join(f"{key}={each!r}" for key, each in members) + ")"
        gemma = "call:pick{" + ",".join(f'{key}:<|"|>{each}<|"|>' if isinstance(each, str) else f"{key}:{each}" for key, each in members) + "}"  # fmt: skip
        CASES += [
            ("pythonic", "text", f"[{python}]", [pick]),
            ("lfm2", "text", f"<|tool_call_start|>[{python}]<|tool_call_end|>", [pick]),
            ("olmo3", "text", f"<function_calls>{python}</function_calls>", [pick]),
            ("gemma4", "text", f"<|tool_call>{gemma}<tool_call|>", [pick]),
        ]
CASES += [
    ("gemma4", "text", '<|tool_call>call:bash({"command":"ls"})<tool_call|>', [LS]),
    ("gemma4", "text", '<|tool_call>call:bash{{command:<|"|>ls<|"|>}}<tool_call|>', [LS]),
    ("llama3_json", "text", '{"name": "bash", "parameters": {"command": "ls"}}}', [LS]),
    ("llama3_json", "text", '```json\n{"name": "bash", "parameters": {"command": "ls"}}\n```', [LS]),
    ("llama3_json", "text", '```\n{"name": "bash", "parameters": {"command": "ls"}}\n```\nDone.', [LS, "Done."]),
    ("llama3_json", "text", '```json\n{"a": {"name": "x"}}\n```', ['```json\n{"a": {"name": "x"}}\n```']),
    ("json", "text", '```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```', [LS]),
    ("mistral", "text", '[TOOL_CALLS]bash[ARGS]{"command": "ls"}[/TOOL_CALLS]', [LS]),
    ("mistral_v3", "text", '[TOOL_CALLS] [{"name": "bash", "arguments": {"command": "ls"}}][/TOOL_CALLS]', [LS]),
    ("qwen3", "text", "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>", [LS]),
    ("qwen3", "text", '<tool_call>\nbash\n{"command": "ls"}\n</tool_call>', [LS]),
    ("qwen3", "text", "<tool_call>bash(command='ls')</tool_call>\nok", [LS, "ok"]),
    ("qwen3", "text", "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>", [LS]),
    ("qwen3", "text", '<tool_call>\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>', [LS]),
    ("qwen3", "text", "The <tool_call> tag starts a call.", ["The <tool_call> tag starts a call."]),
    ("minimax_m3", "text", ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="odd">]<]minimax[>[<a>b>yes]<]minimax[>[</a>b>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>', [("odd", {"a>b": "yes"})]),
    ("cohere_command5", "text", '<cofl:tool_calls><cofl:tool_call id="0" name="odd"><cofl:value name="a>b" type="raw">yes</cofl:value></cofl:tool_call></cofl:tool_calls>', [("odd", {"a>b": "yes"})]),
    ("muse", "text", ' to=other<|message|>{"command": "ls"}<|eot|>', [("other", {"command": "ls"})]),
    ("muse", "text", " to=bash<|message|>ls -l<|eot|>", ["ls -l"]),
    ("muse", "text", "to=other<|message|>Hello.<|eom|>", ["Hello."]),
    ("muse_glimmer", "text", "Set to=5 here.", ["Set to=5 here."]),
    ("thought", "reasoning", "Hm.</thought>Hi", ["Hm.", "Hi"]),
    ("qwen3", "text", '<tool_call>\n{"name": "bash", "arguments": }\n</tool_call>', [("bash", {})]),
]  # fmt: skip
for namespace in ("functions", "default_api", "tools"):
    called = f"{namespace}.bash"
    CASES += [
        ("qwen3", "text", f'<tool_call>\n{{"name": "{called}", "arguments": {{"command": "ls"}}}}\n</tool_call>', [LS]),
        ("llama3_json", "text", f'{{"name": "{called}", "parameters": {{"command": "ls"}}}}', [LS]),
        ("qwen3_coder", "text", f"<tool_call>\n<function={called}>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>", [LS]),
        ("glm45", "text", f"<tool_call>{called}\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>", [LS]),
        ("pythonic", "text", f'[{called}(command="ls")]', [LS]),
        ("muse", "text", f' to={called}<|message|>{{"command": "ls"}}<|eot|>', [LS]),
        ("gemma4", "text", f'<|tool_call>call:{called}{{command:<|"|>ls<|"|>}}<tool_call|>', [LS]),
    ]  # fmt: skip
CASES.append(("qwen3", "text", '<tool_call>\n{"name": "functions.other", "arguments": {}}\n</tool_call>', [("functions.other", {})]))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tail", "output", "meant"), CASES, ids=[f"{i}-{each[0]}" for i, each in enumerate(CASES)]
)  # fmt: skip
def test_what_was_meant_is_read(name: str, tail: Tail, output: str, meant: list[Any]) -> None:
    found = []
    for parts in ([output], list(output), *cuttings(Random(1), output)):
        parser = MarkupFormat(BY_NAME[name]).parser(ParserContext(tail=tail, tools=TOOLS))
        deltas = feed(parser, parts)
        check_grammar(deltas, output)
        found.append(blocks(deltas))
    assert all(each == found[0] for each in found)
    assert all(block.whole for block in found[0])
    said = [(block.name, json.loads(block.text)) if block.name else block.text for block in found[0]]  # fmt: skip
    assert said == meant
