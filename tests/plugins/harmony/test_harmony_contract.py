"""The contract that every output format keeps."""

from __future__ import annotations

import pytest

from gateway.testing import OutputParserContract, ScriptedTokenizer
from gateway_harmony import HarmonyFormat


class TestHarmonyContract(OutputParserContract):
    @pytest.fixture
    def output_format(self) -> HarmonyFormat:
        return HarmonyFormat(ScriptedTokenizer())
