"""The engine `scripted`: deterministic answers for client developers and tests."""

from gateway_scripted.engine import ScriptedEngine
from gateway_scripted.plugin import (
    ScriptedConfig,
    gateway_check_configuration,
    gateway_register_engines,
    open_scripted,
)
from gateway_scripted.scenario import Rule, Scenario, load_scenario, parse_scenario
from gateway_scripted.tokenizer import CONTROL_TOKENS, VISIBLE_TOKENS, ScriptedTokenizer

__all__ = [
    "CONTROL_TOKENS",
    "VISIBLE_TOKENS",
    "Rule",
    "Scenario",
    "ScriptedConfig",
    "ScriptedEngine",
    "ScriptedTokenizer",
    "gateway_check_configuration",
    "gateway_register_engines",
    "load_scenario",
    "open_scripted",
    "parse_scenario",
]
