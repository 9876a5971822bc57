"""The formats keep the contract of output parsers."""

from __future__ import annotations

import pytest

from gateway.protocols import OutputFormat
from gateway.testing.output_contract import OutputParserContract
from gateway_parsers import BY_NAME, MarkupFormat


class TestQwen3(OutputParserContract):
    @pytest.fixture
    def output_format(self) -> OutputFormat:
        return MarkupFormat(BY_NAME["qwen3"])


class TestDeepSeekR1(OutputParserContract):
    calls = False

    @pytest.fixture
    def output_format(self) -> OutputFormat:
        return MarkupFormat(BY_NAME["deepseek_r1"])


class TestPlain(OutputParserContract):
    calls = False
    reasons = False

    @pytest.fixture
    def output_format(self) -> OutputFormat:
        return MarkupFormat(BY_NAME["plain"])
