"""The format `hf`: a response template in the model's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError
from gateway.plugins.protocols import CallPiece, ModelInfo, ParserContext, ReasoningPiece, TextPiece
from gateway_parsers import MarkupFormat
from gateway_parsers.response_template import ResponseTemplateConfig, spec_of_template
from gateway_testing.reading import Block, read

THINKING = {"open": ["<think>\n", "<thought>"], "close": "\n</think>\n\n", "content": "text"}
JSON_CALLS = {
    "open": "<tool_call>\n",
    "close": "\n</tool_call>",
    "repeats": True,
    "content": "json",
    "transform": {"type": "function", "function": "{content}"},
}
TAG_CALLS = {
    "open_pattern": r"<tool_call>(?P<name>[^<]+)",
    "close": "</tool_call>",
    "repeats": True,
    "content": "xml-inline",
    "content_args": {"tag_pattern": r"<arg_key>(?P<key>.*?)<\/arg_key><arg_value>(?P<value>.*?)</arg_value>"},
    "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
}  # fmt: skip


def template(**fields: Any) -> dict[str, Any]:
    return {"start_anchor": "<|im_start|>assistant\n", "fields": {"content": {}, **fields}}


def made(folder: Path, value: Any, file: str = "tokenizer_config.json") -> MarkupFormat:
    content = {"response_template": value} if file == "tokenizer_config.json" else value
    (folder / file).write_text(json.dumps(content), "utf-8")
    info = ModelInfo(name="m", engine="e", path=str(folder))
    return MarkupFormat(spec_of_template(ResponseTemplateConfig(), info))


@pytest.mark.parametrize("file", ["tokenizer_config.json", "response_template.json"])
def test_thinking_text_and_json_calls_are_read(tmp_path: Path, file: str) -> None:
    output_format = made(tmp_path, template(thinking=THINKING, tool_calls=JSON_CALLS), file)
    raw = '<think>\nhm\n</think>\n\nHi.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    expected = [Block("reasoning", "hm"), Block("text", "Hi."), Block("call", '{"a": 1}', "f")]
    for parts in ([raw], list(raw)):
        assert read(output_format, parts, ParserContext(tail="text")) == expected
    pieces = [ReasoningPiece("hm"), TextPiece("Hi."), CallPiece("f", '{"a": 1}')]
    assert output_format.write(pieces, tail="text") == raw


def test_calls_in_the_syntax_of_a_known_family_are_read(tmp_path: Path) -> None:
    output_format = made(tmp_path, template(tool_calls=TAG_CALLS))
    raw = "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></tool_call>"
    assert read(output_format, [raw], ParserContext(tail="text")) == [
        Block("call", '{"a": "x"}', "f")
    ]


def test_a_file_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(template(thinking=THINKING)), "utf-8")
    spec = spec_of_template(ResponseTemplateConfig(template=path), ModelInfo(name="m", engine="e"))
    assert spec.reasoning is not None
    assert spec.reasoning.opens == ("<think>", "<thought>")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"fields": {"thinking": {"open_pattern": "x+", "close": "y"}}}, "needs texts as 'open'"),
        ({"fields": {"thinking": {"open": " ", "close": "y"}}}, "more than white space"),
        ({"fields": {"poem": {}}}, "the field 'poem' is not supported"),
        ({"fields": {"tool_calls": {"open": "<a>", "content": "xml-inline"}}}, "known syntax"),
        ({"fields": {"tool_calls": {"open": "@@", "close": "@@", "content": "json"}}}, "starts and ends"),
        ({"fields": []}, "an object 'fields'"),
        ({}, "has no 'response_template'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_stops_the_start(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        made(tmp_path, value)


def test_without_files_there_is_no_format(tmp_path: Path) -> None:
    missing = ResponseTemplateConfig(template=tmp_path / "none.json")
    with pytest.raises(ConfigurationError, match="there is no such file"):
        spec_of_template(missing, ModelInfo(name="m", engine="e"))
    with pytest.raises(ConfigurationError, match="has no 'response_template'"):
        spec_of_template(ResponseTemplateConfig(), ModelInfo(name="m", engine="e"))
