"""The Anthropic Messages API for the gateway's models: `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from gateway.sdk import OpenApiPlugin, Register, hookimpl
from gateway_messages.api import open_messages
from gateway_messages.config import MessagesConfig

__all__ = ["MessagesConfig", "gateway_register_apis", "open_messages"]


@hookimpl
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    register("messages", open_messages, config=MessagesConfig, summary="the Anthropic Messages API")
