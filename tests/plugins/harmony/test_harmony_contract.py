"""The contract that every output format keeps."""

from __future__ import annotations

import pytest

from gateway.testing import OutputParserContract
from gateway_harmony import HarmonyFormat
from gateway_scripted import ScriptedTokenizer


class TestHarmonyContract(OutputParserContract):
    @pytest.fixture
    def output_format(self) -> HarmonyFormat:
        return HarmonyFormat(ScriptedTokenizer())
