"""The configuration: `gateway.toml`, the environment and the command line, decoded once at start-up."""

from gateway.config.hosts import AllowedHosts, TrustedProxies
from gateway.config.keys_file import read_keys
from gateway.config.loading import list_settings, load_config, load_listening, model_name
from gateway.config.prompts import PromptConfig, PromptMessage, PromptVersion
from gateway.config.structs import (
    ApiKey,
    Config,
    DocumentsConfig,
    EngineParameter,
    EngineProcess,
    LogFormat,
    LogLevel,
    MediaConfig,
    ModelConfig,
    PluginsConfig,
    Price,
    RouteConfig,
    SamplingDefaults,
    SchemaLimits,
    ServerConfig,
    Setting,
)

__all__ = [
    "AllowedHosts",
    "ApiKey",
    "Config",
    "DocumentsConfig",
    "EngineParameter",
    "EngineProcess",
    "LogFormat",
    "LogLevel",
    "MediaConfig",
    "ModelConfig",
    "PluginsConfig",
    "Price",
    "PromptConfig",
    "PromptMessage",
    "PromptVersion",
    "RouteConfig",
    "SamplingDefaults",
    "SchemaLimits",
    "ServerConfig",
    "Setting",
    "TrustedProxies",
    "list_settings",
    "load_config",
    "load_listening",
    "model_name",
    "read_keys",
]
