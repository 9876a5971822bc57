"""The configuration: `gateway.toml`, the environment and the command line, decoded once at start-up."""

from gateway.config.loading import load_config, model_name
from gateway.config.structs import (
    ApiKey,
    Config,
    LogLevel,
    ModelConfig,
    PluginsConfig,
    SamplingDefaults,
    ServerConfig,
)

__all__ = [
    "ApiKey",
    "Config",
    "LogLevel",
    "ModelConfig",
    "PluginsConfig",
    "SamplingDefaults",
    "ServerConfig",
    "load_config",
    "model_name",
]
