"""The contract that every output format keeps."""

from __future__ import annotations

import pytest

from gateway_harmony import HarmonyFormat
from gateway_scripted import ScriptedTokenizer
from gateway_testing import OutputParserContract


class TestHarmonyContract(OutputParserContract):
    @pytest.fixture
    def output_format(self) -> HarmonyFormat:
        return HarmonyFormat(ScriptedTokenizer())
