"""Runs Litegate's contract tests on the format."""

import pytest

import gateway_bracketed
from gateway.sdk import ModelContext, ModelInfo, NoConfig, OutputFormat, ParserContext
from gateway_testing import OutputParserContract
from gateway_testing.reading import Block, read

CONTEXT = ModelContext(info=ModelInfo(name="m", engine="e"), tokenizer=None)


class TestBracketed(OutputParserContract):
    @pytest.fixture
    def output_format(self) -> OutputFormat:
        return gateway_bracketed.make_bracketed(NoConfig(), CONTEXT)


def test_an_output_of_the_model_is_read() -> None:
    output_format = gateway_bracketed.make_bracketed(NoConfig(), CONTEXT)
    raw = '[[think]] Hm. [[/think]]\n[[call]] {"tool": "f", "with": {"a": 1}} [[/call]]'
    assert read(output_format, [raw], ParserContext()) == [
        Block("reasoning", "Hm."),
        Block("call", '{"a": 1}', name="f"),
    ]


def test_a_model_with_such_a_template_chooses_it() -> None:
    model = ModelInfo(name="m", engine="e", chat_template="[[call]] {{ call }}")
    profile = gateway_bracketed.gateway_model_profile(model)
    assert profile is not None
    assert profile.parser == "bracketed"
