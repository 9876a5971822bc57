"""The engine `scripted`: a deterministic server for client developers and for tests."""

from gateway_scripted.plugin import (
    ScriptedConfig,
    gateway_register_engines,
    open_scripted,
)

__all__ = [
    "ScriptedConfig",
    "gateway_register_engines",
    "open_scripted",
]
