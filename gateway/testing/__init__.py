"""Test support for plugin authors and client developers. The running gateway never imports it.

The contract kits (`ApiContract`, `EngineContract`, `EmbeddingContract`, `ScoreContract`, `LimitCountersContract`,
`OutputParserContract`, `PolicyContract`, `RendererContract`, `RouterContract`, `ToolServerContract`, `ResponseStoreContract`,
`RequestAuthenticatorContract`, `UsageCountersContract`) are pytest classes: subclass one and provide its fixture, and the
inherited tests check your plugin. `PluginRegistry` is the `registry` of a context. `check_plugin` checks its installation. The
kits need `pip install litegate[testing]`. `ApiContract` and `RendererContract` use the engine `scripted`, and so need
`litegate-scripted` too; its classes are in `gateway_scripted`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.plugins import load_plugins
    from gateway.startup.registry import PluginRegistry
    from gateway.testing.api_contract import ApiContract
    from gateway.testing.authenticator_contract import RequestAuthenticatorContract
    from gateway.testing.embedding_contract import EmbeddingContract
    from gateway.testing.engine_contract import EngineContract
    from gateway.testing.limit_contract import LimitCountersContract
    from gateway.testing.output_contract import OutputParserContract
    from gateway.testing.plugin_check import check_plugin
    from gateway.testing.policy_contract import PolicyContract
    from gateway.testing.renderer_contract import RendererContract
    from gateway.testing.router_contract import RouterContract
    from gateway.testing.score_contract import ScoreContract
    from gateway.testing.store_contract import ResponseStoreContract
    from gateway.testing.tool_contract import ToolServerContract
    from gateway.testing.usage_contract import UsageCountersContract

__all__ = [
    "ApiContract",
    "EmbeddingContract",
    "EngineContract",
    "LimitCountersContract",
    "OutputParserContract",
    "PluginRegistry",
    "PolicyContract",
    "RendererContract",
    "RequestAuthenticatorContract",
    "ResponseStoreContract",
    "RouterContract",
    "ScoreContract",
    "ToolServerContract",
    "UsageCountersContract",
    "check_plugin",
    "load_plugins",
]

# Imported on demand: each needs packages of its own.
_ORIGINS = {
    "ApiContract": "gateway.testing.api_contract",
    "EmbeddingContract": "gateway.testing.embedding_contract",
    "EngineContract": "gateway.testing.engine_contract",
    "LimitCountersContract": "gateway.testing.limit_contract",
    "OutputParserContract": "gateway.testing.output_contract",
    "PluginRegistry": "gateway.startup.registry",
    "PolicyContract": "gateway.testing.policy_contract",
    "RendererContract": "gateway.testing.renderer_contract",
    "RequestAuthenticatorContract": "gateway.testing.authenticator_contract",
    "ResponseStoreContract": "gateway.testing.store_contract",
    "RouterContract": "gateway.testing.router_contract",
    "ScoreContract": "gateway.testing.score_contract",
    "ToolServerContract": "gateway.testing.tool_contract",
    "UsageCountersContract": "gateway.testing.usage_contract",
    "check_plugin": "gateway.testing.plugin_check",
    "load_plugins": "gateway.plugins",
}


def __getattr__(name: str) -> Any:
    if name in _ORIGINS:
        return getattr(import_module(_ORIGINS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
