"""Prompts from the model's own Jinja chat template."""

from __future__ import annotations

from gateway.sdk import MakeRenderer, Register, hookimpl
from gateway_chat_template.renderer import ChatTemplateConfig, ChatTemplateRenderer

__all__ = ["ChatTemplateConfig", "ChatTemplateRenderer"]


@hookimpl
def gateway_register_renderers(register: Register[MakeRenderer]) -> None:
    register(
        "chat_template",
        ChatTemplateRenderer,
        config=ChatTemplateConfig,
        summary="the model's own Jinja chat template, in a sandbox",
    )
