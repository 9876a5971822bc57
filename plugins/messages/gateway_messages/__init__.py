"""The Anthropic Messages API in front of the gateway's models: `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from gateway import hookimpl
from gateway.hookspecs import OpenFront, Register
from gateway_messages.config import Config
from gateway_messages.front import open_messages

__all__ = ["Config", "gateway_register_routes", "open_messages"]


@hookimpl
def gateway_register_routes(register: Register[OpenFront]) -> None:
    register("messages", open_messages, config=Config, summary="the Anthropic Messages API")
