"""A slip in a call's arguments is mended alike in every format whose arguments are JSON, however the output is cut."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from gateway.plugins.protocols import ParserContext, ToolDefinition
from gateway_harmony import HarmonyFormat
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_testing.mutations import cuttings
from gateway_testing.reading import Block, blocks, check_grammar, feed

TOOLS = {
    "note": ToolDefinition(
        name="note",
        parameters={
            "type": "object",
            "properties": {"text": {"type": "string"}, "n": {"type": "integer"}},
        },
    )
}
_JSON = '{"name": "note", "arguments": '
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>functions.note:0<|tool_call_argument_begin|>"
KIMI_END = "<|tool_call_end|><|tool_calls_section_end|>"
DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>note<｜tool▁sep｜>"
DEEPSEEK_END = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
FORMATS = (
    ("qwen3", f"<tool_call>\n{_JSON}", "}\n</tool_call>"),
    ("llama3_json", '{"name": "note", "parameters": ', "}"),
    ("mistral_v3", f"[TOOL_CALLS] [{_JSON}", "}]"),
    ("mistral", "[TOOL_CALLS]note[ARGS]", ""),
    ("deepseek_v31", DEEPSEEK, DEEPSEEK_END),
    ("kimi_k2", KIMI, KIMI_END),
    ("harmony", "<|channel|>commentary to=functions.note <|constrain|>json<|message|>", "<|call|>"),
    ("qwen3_coder", "<tool_call>\n<function=note>\n", "\n</function>\n</tool_call>"),
    ("glm45", "<tool_call>note\n", "\n</tool_call>"),
    ("granite", f"<|tool_call|>[{_JSON}", "}]"),
    ("phi4_mini_json", f"functools[{_JSON}", "}]"),
    ("apertus", '<|tools_prefix|>[{"note": ', "}]<|tools_suffix|>"),
    ("cohere_command3", '<|START_ACTION|>[{"tool_name": "note", "parameters": ', "}]<|END_ACTION|>"),
)  # fmt: skip
MEANT = {"text": "a, b", "n": 3}
SLIPS: tuple[tuple[str, Any], ...] = (
    ('{"text": "a, b", "n": 3}', MEANT),
    ('{“text”: “a, b”, “n”: 3}', MEANT),
    ('{"text": “a, b”, "n": 3}', MEANT),
    ("{‘text’: ‘a, b’, ‘n’: 3}", MEANT),
    ('{"text": `a, b`, "n": 3,}', MEANT),
    ('{"text": """a, b""", "n": 3}', MEANT),
    ("{'text': '''a, b''', 'n': 3}", MEANT),
    ('{"text": "a, b", // the text\n "n": 3 // its number\n}', MEANT),
    ('{/* both */ "text": "a, b", "n": 3}', MEANT),
    ('[{"text": "a, b", "n": 3}]', MEANT),
    ('[\n{"text": "a, b", "n": 3}\n]', MEANT),
    ('{{"text": "a, b", "n": 3}}', MEANT),
    ('{"text": "a, b", "n": 3}}', MEANT),
    ('{"text": "a, b", "n": 3', MEANT),
    ('{"text": NULL, "n": 3}', {"text": None, "n": 3}),
    ("null", {}),
    ("[]", {}),
    ("", {}),
)  # fmt: skip
FENCED = ("mistral", "deepseek_v31", "kimi_k2", "harmony", "qwen3_coder", "glm45")


def read(name: str, parts: list[str]) -> list[Block]:
    output_format = HarmonyFormat() if name == "harmony" else MarkupFormat(BY_NAME[name])
    tail = "unknown" if name == "harmony" else "text"
    deltas = feed(output_format.parser(ParserContext(tail=tail, tools=TOOLS)), parts)  # type: ignore[arg-type]
    check_grammar(deltas, "".join(parts))
    return blocks(deltas)


@pytest.mark.parametrize(("name", "before", "after"), FORMATS, ids=[each[0] for each in FORMATS])
def test_a_slip_in_arguments_is_mended(name: str, before: str, after: str) -> None:
    slips = [*SLIPS, *(((f"```json\n{SLIPS[0][0]}\n```", MEANT),) if name in FENCED else ())]
    for written, meant in slips:
        output = before + written + after
        at_once = read(name, [output])
        assert [(each.kind, each.name, each.whole) for each in at_once] == [
            ("call", "note", True)
        ], output
        assert json.loads(at_once[0].text) == meant, output
        for parts in (list(output), *cuttings(Random(1), output)):
            assert read(name, parts) == at_once, output
