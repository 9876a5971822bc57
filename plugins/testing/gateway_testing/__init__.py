"""Test support for plugin authors and client developers. A running gateway never imports it.

The contract kits (`ApiContract`, `EngineContract`, `EmbeddingContract`, `ScoreContract`, `LimitCountersContract`,
`OutputParserContract`, `PolicyContract`, `RendererContract`, `RouterContract`, `ToolServerContract`,
`ResponseStoreContract`, `RequestAuthenticatorContract`, `UsageCountersContract`) are pytest classes: subclass one and
provide its fixture, and the inherited tests check your plugin. `PluginRegistry` is the `registry` of a context.
`check_plugin` checks the installation of a plugin. `ApiContract` and `RendererContract` use the engine `scripted`, and
therefore need `litegate-scripted` too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.plugins.loading import load_plugins
    from gateway.startup.registry import PluginRegistry
    from gateway_testing.api_contract import ApiContract
    from gateway_testing.authenticator_contract import RequestAuthenticatorContract
    from gateway_testing.embedding_contract import EmbeddingContract
    from gateway_testing.engine_contract import EngineContract
    from gateway_testing.limit_contract import LimitCountersContract
    from gateway_testing.output_contract import OutputParserContract
    from gateway_testing.plugin_check import check_plugin
    from gateway_testing.policy_contract import PolicyContract
    from gateway_testing.renderer_contract import RendererContract
    from gateway_testing.router_contract import RouterContract
    from gateway_testing.score_contract import ScoreContract
    from gateway_testing.store_contract import ResponseStoreContract
    from gateway_testing.tool_contract import ToolServerContract
    from gateway_testing.usage_contract import UsageCountersContract

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

# Imported on demand: each needs other packages.
_ORIGINS = {
    "ApiContract": "gateway_testing.api_contract",
    "EmbeddingContract": "gateway_testing.embedding_contract",
    "EngineContract": "gateway_testing.engine_contract",
    "LimitCountersContract": "gateway_testing.limit_contract",
    "OutputParserContract": "gateway_testing.output_contract",
    "PluginRegistry": "gateway.startup.registry",
    "PolicyContract": "gateway_testing.policy_contract",
    "RendererContract": "gateway_testing.renderer_contract",
    "RequestAuthenticatorContract": "gateway_testing.authenticator_contract",
    "ResponseStoreContract": "gateway_testing.store_contract",
    "RouterContract": "gateway_testing.router_contract",
    "ScoreContract": "gateway_testing.score_contract",
    "ToolServerContract": "gateway_testing.tool_contract",
    "UsageCountersContract": "gateway_testing.usage_contract",
    "check_plugin": "gateway_testing.plugin_check",
    "load_plugins": "gateway.plugins.loading",
}


def __getattr__(name: str) -> Any:
    if name in _ORIGINS:
        return getattr(import_module(_ORIGINS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
