"""Helpers for commands: the arguments that commands share, a client of an API, text for terminals."""

from gateway.base.net.tls import https_handler
from gateway.commands.api_client import ApiClient, ApiError, ModelEntry
from gateway.commands.arguments import API_DEFAULT, add_config_argument, api_url, table
from gateway.commands.terminal_text import one_line, visible, without_surrogates

__all__ = [
    "API_DEFAULT",
    "ApiClient",
    "ApiError",
    "ModelEntry",
    "add_config_argument",
    "api_url",
    "https_handler",
    "one_line",
    "table",
    "visible",
    "without_surrogates",
]
