"""The renderer of models behind an upstream: converts a turn to the upstream's API."""

from __future__ import annotations

from typing import Any

from gateway.sdk import ChatPrompt, ModelContext, RenderedPrompt, Turn, Unsupported
from gateway_openai.body import not_an_extension
from gateway_openai.config import OpenAIConfig
from gateway_openai.input_items import input_items
from gateway_openai.messages import chat_messages
from gateway_openai.tools import format_fields, tool_fields


class UpstreamRenderer:
    """Implements `gateway.sdk.PromptRenderer`. The prompt's `extra` holds the turn's tools, format and
    settings."""

    def __init__(self, config: OpenAIConfig, context: ModelContext) -> None:
        self._config = config

    def render(self, turn: Turn) -> RenderedPrompt:
        config = self._config
        fields: dict[str, Any] = {**format_fields(turn.text_format, config), **self._settings(turn)}
        tools = tool_fields(turn, config)
        messages: list[dict[str, Any]]
        if config.api == "chat":
            messages = chat_messages(turn, config)
        else:
            messages = input_items(turn, config)
            if turn.instructions:
                fields["instructions"] = turn.instructions
        prompt = ChatPrompt(
            messages=messages,
            tools=tools.pop("tools", ()),
            tool_choice=tools.pop("tool_choice", None),
            extra={**fields, **tools},
        )
        return RenderedPrompt(prompt=prompt)

    def _settings(self, turn: Turn) -> dict[str, Any]:
        """Body fields for the reasoning effort and for template parameters, which only some engines support."""
        config = self._config
        fields: dict[str, Any] = {}
        if turn.reasoning_effort is not None:
            if not config.takes.reasoning_effort:
                raise Unsupported(
                    "The upstream of this model does not support a reasoning effort. Leave it out.",
                    param=("reasoning", "effort"),
                )
            if config.api == "chat":
                fields["reasoning_effort"] = turn.reasoning_effort
            else:
                fields["reasoning"] = {"effort": turn.reasoning_effort}
        given = {
            "chat_template": turn.chat_template,
            "chat_template_kwargs": dict(turn.chat_template_kwargs) or None,
            "documents": list(turn.documents) or None,
            "add_generation_prompt": None if turn.add_generation_prompt else False,
            "continue_final_message": True if turn.continue_final_message else None,
        }
        for name, value in given.items():
            if value is None:
                continue
            if not config.extends(name):
                raise not_an_extension(name)
            fields[name] = value
        return fields
