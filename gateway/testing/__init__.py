"""What plugin authors and client developers test with. The running gateway never imports it.

`ScriptedEngine` answers by a scenario. The contract kits (`EngineContract`, `EmbeddingContract`,
`OutputParserContract`, `ToolServerContract`, `ResponseStoreContract`) are pytest classes: subclass one, give its
fixture, and the inherited tests prove your plugin. `check_plugin` proves the installation. The kits need `pip install litegate[testing]`; the engine needs
nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gateway.testing.scenario import Rule, Scenario, load_scenario, parse_scenario
from gateway.testing.scripted import ScriptedEngine
from gateway.testing.tokenizer import ScriptedTokenizer

if TYPE_CHECKING:
    from gateway.testing.embedding_contract import EmbeddingContract
    from gateway.testing.engine_contract import EngineContract
    from gateway.testing.output_contract import OutputParserContract
    from gateway.testing.plugin_check import check_plugin
    from gateway.testing.store_contract import ResponseStoreContract
    from gateway.testing.tool_contract import ToolServerContract

__all__ = [
    "EmbeddingContract",
    "EngineContract",
    "OutputParserContract",
    "ResponseStoreContract",
    "Rule",
    "Scenario",
    "ScriptedEngine",
    "ScriptedTokenizer",
    "ToolServerContract",
    "check_plugin",
    "load_scenario",
    "parse_scenario",
]

# Imported when asked for: they need pytest and hypothesis, which a server that runs the scripted engine has not.
_KITS = {
    "EmbeddingContract": "gateway.testing.embedding_contract",
    "EngineContract": "gateway.testing.engine_contract",
    "OutputParserContract": "gateway.testing.output_contract",
    "ResponseStoreContract": "gateway.testing.store_contract",
    "ToolServerContract": "gateway.testing.tool_contract",
    "check_plugin": "gateway.testing.plugin_check",
}


def __getattr__(name: str) -> Any:
    if name in _KITS:
        return getattr(import_module(_KITS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
