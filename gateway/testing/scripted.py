"""The scripted engine. It is the package `litegate-scripted`, which tests with it need."""

from gateway_scripted import (
    CONTROL_TOKENS,
    VISIBLE_TOKENS,
    Rule,
    Scenario,
    ScriptedEngine,
    ScriptedTokenizer,
    load_scenario,
    parse_scenario,
)

__all__ = [
    "CONTROL_TOKENS",
    "VISIBLE_TOKENS",
    "Rule",
    "Scenario",
    "ScriptedEngine",
    "ScriptedTokenizer",
    "load_scenario",
    "parse_scenario",
]
