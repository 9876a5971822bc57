"""Outputs on which public bug reports say that other servers lost or mangled calls (tests/data/reported_outputs.json).

Each is what the report shows, made short. `report` names the repository and the thread; what is expected is what a careful
reader of the output takes from it, which is not always what that project came to do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins.protocols import OutputFormat, ParserContext, ToolDefinition
from gateway_harmony import HarmonyFormat
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_testing.reading import blocks, check_grammar, feed

DATA = json.loads((Path(__file__).parents[2] / "data" / "reported_outputs.json").read_text("utf-8"))
REPORTS: list[dict[str, Any]] = DATA["outputs"]
TOOLS = {
    name: ToolDefinition(name=name, parameters=parameters)
    for name, parameters in DATA["tools"].items()
}


def format_of(name: str) -> OutputFormat:
    return HarmonyFormat() if name == "harmony" else MarkupFormat(BY_NAME[name])


def read(report: dict[str, Any], parts: list[str]) -> list[Any]:
    tail = report.get("start", "unknown" if report["format"] == "harmony" else "text")
    parser = format_of(report["format"]).parser(ParserContext(tail=tail, tools=TOOLS))
    deltas = feed(parser, parts, report.get("finish", "stop"))
    check_grammar(deltas, "".join(parts))
    return [
        block.text if block.kind == "text"
        else {block.kind: block.text} if block.kind != "call"
        else {"call": block.name, "arguments": json.loads(block.text)} if block.whole
        else {"cut": block.name, "arguments": block.text}
        for block in blocks(deltas)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "report", REPORTS, ids=[f"{each['format']}-{each['report']}" for each in REPORTS]
)
def test_what_was_lost_elsewhere_is_read_here_however_it_is_cut(report: dict[str, Any]) -> None:
    output = report["output"]
    assert read(report, [output]) == report["items"]
    assert read(report, list(output)) == report["items"]
    for at in range(1, len(output)):
        assert read(report, [output[:at], output[at:]]) == report["items"]


def test_at_least_forty_reports_are_here() -> None:
    assert len({each["report"] for each in REPORTS}) >= 40


def test_a_doubled_brace_that_a_template_has_taught_says_nothing() -> None:
    for inner in ('{"command": "ls"}', '{"command": "{{ x }}"}'):
        output = f'<tool_call>\n{{{{"name": "bash", "arguments": {inner}}}}}}}\n</tool_call>ok'
        said = read({"format": "qwen3"}, [output])
        assert said == [{"call": "bash", "arguments": json.loads(inner)}, "ok"]
