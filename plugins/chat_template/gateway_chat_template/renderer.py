"""The renderer: a turn as the text, and the tokens, of the model's own chat template."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from gateway.errors import ConfigurationError, InvalidRequest
from gateway.hookspecs import ModelContext
from gateway.protocols.engine import ModelInfo
from gateway.protocols.prompt import RenderedPrompt, Tail, TokensPrompt, ToolDefinition, Turn
from gateway_chat_template.conversation import conversation
from gateway_chat_template.environment import (
    RESERVED,
    SYNTAX_ERRORS,
    Template,
    TemplateRefusal,
    TemplateTooLong,
)
from gateway_chat_template.features import Features, find_features
from gateway_chat_template.messages import Message, messages_of
from gateway_chat_template.tail import THINKING_MARKERS, tail_of

_END = "\u2060\u2063qz-here-the-final-message-ends\u2063\u2060"
"""Stands at the end of a message that is to be continued; no text has it."""
_MAX_TEMPLATE = 1_000_000


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[models.<model>.chat_template]`."""

    tools_without_choice: bool = False
    """Whether the model is told of its tools where `tool_choice` is `none`. It is not, since what it cannot call it
    should not try to; saying them all the same keeps the beginning of the prompt the same for the engine's cache."""
    max_characters: int = 50_000_000
    """The longest prompt, as text."""
    thinking_markers: list[tuple[str, str]] = []
    """Further pairs of markers around reasoning, for models whose own are not known here."""


class Prepared(Struct, frozen=True):
    """A template, and what it can express."""

    template: Template
    features: Features


class ChatTemplateRenderer:
    """Renders with the model's chat template, or with the request's where the configuration trusts that.

    Raises `ConfigurationError` for a model without a chat template or tokenizer, or whose template is malformed.
    """

    def __init__(self, config: Config, context: ModelContext) -> None:
        info = context.info
        if context.tokenizer is None:
            raise ConfigurationError(
                f"The renderer 'chat_template' needs a tokenizer, and the engine of model {info.name!r} has none:"
                " choose the renderer that belongs to this engine."
            )
        if not info.chat_template:
            raise ConfigurationError(
                f"Model {info.name!r} has no chat template. Set chat_template for it, or choose another renderer."
            )
        self._config = config
        self._tokenizer = context.tokenizer
        self._trusted = context.trust_request_chat_template
        self._tokens = _special_tokens(info)
        self._markers = (*map(tuple, config.thinking_markers), *THINKING_MARKERS)
        try:
            self._own = _prepare(info.chat_template, self._tokens)
        except SYNTAX_ERRORS as error:
            raise ConfigurationError(
                f"The chat template of model {info.name!r} is malformed: {error.message} (line {error.lineno})."
            ) from error
        self._prepare_request = lru_cache(maxsize=16)(self._prepare)

    @property
    def features(self) -> Features:
        """What the model's own template can express."""
        return self._own.features

    def render(self, turn: Turn) -> RenderedPrompt:
        text, images = self._render(turn)
        return RenderedPrompt(
            prompt=TokensPrompt(token_ids=self._tokenizer.encode(text)),
            tail=self._tail(text, turn),
            multi_modal={"image": images} if images else None,
        )

    def render_text(self, turn: Turn) -> str:
        """The prompt before it becomes tokens."""
        return self._render(turn)[0]

    def _tail(self, text: str, turn: Turn) -> Tail:
        tail = tail_of(text, self._markers)
        return "text" if turn.continue_final_message and tail == "unknown" else tail

    def _render(self, turn: Turn) -> tuple[str, list[str]]:
        prepared = self._prepared(turn)
        template, features = prepared.template, prepared.features
        told = turn.tools if turn.tool_choice != "none" or self._config.tools_without_choice else ()
        if told and not features.tools:
            raise InvalidRequest(
                "This model's chat template has no place for tools. Leave them out, or use another model.",
                param="tools",
            )
        entries = conversation(
            turn.items,
            {tool.name for tool in turn.tools},
            turn.results,
            sees_images=features.image is not None,
        )
        messages, images = messages_of(entries, turn.instructions, features)
        if turn.continue_final_message:
            _mark_end(messages)
        variables = {
            **self._tokens,
            **_effort(turn.reasoning_effort, template),
            **_checked(turn.chat_template_kwargs),
            "messages": messages,
            "tools": [_tool(tool) for tool in told] or None,
            "documents": list(turn.documents) or None,
            "add_generation_prompt": turn.add_generation_prompt and not turn.continue_final_message,
        }
        text = self._run(template, variables, turn.today)
        if turn.continue_final_message:
            text = _cut_at_end(text)
        return text, images

    def _run(self, template: Template, variables: Mapping[str, Any], today: str | None) -> str:
        limit = self._config.max_characters
        try:
            return template.render(variables, today=today, limit=limit)
        except TemplateTooLong:
            raise InvalidRequest(
                f"The prompt is longer than {limit} characters.", param="input"
            ) from None
        except TemplateRefusal as refusal:
            raise InvalidRequest(
                f"The model's chat template refuses this conversation: {refusal}", param="input"
            ) from None
        except Exception as error:
            # A template is its author's code, and says no by whatever its operations raise.
            raise InvalidRequest(
                f"The model's chat template failed on this conversation: {type(error).__name__}: {error}",
                param="input",
            ) from error

    def _prepared(self, turn: Turn) -> Prepared:
        if turn.chat_template is None:
            return self._own
        if not self._trusted:
            raise InvalidRequest(
                "This server does not take chat templates from requests. Leave it out, or set"
                " trust_request_chat_template for the model.",
                param="chat_template",
            )
        if len(turn.chat_template) > _MAX_TEMPLATE:
            raise InvalidRequest(
                f"The chat template is longer than {_MAX_TEMPLATE} characters.",
                param="chat_template",
            )
        try:
            return self._prepare_request(turn.chat_template)
        except SYNTAX_ERRORS as error:
            raise InvalidRequest(
                f"The chat template is malformed: {error.message} (line {error.lineno}).",
                param="chat_template",
            ) from None

    def _prepare(self, source: str) -> Prepared:
        return _prepare(source, self._tokens)


def _prepare(source: str, tokens: Mapping[str, str]) -> Prepared:
    template = Template(source)
    return Prepared(template, find_features(template, tokens))


def _special_tokens(info: ModelInfo) -> dict[str, str]:
    return {"bos_token": info.bos_token or "", "eos_token": info.eos_token or ""}


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    """A tool in the Chat Completions' shape, which templates are written for."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    elif tool.kind == "custom":
        function["parameters"] = {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        }
    else:
        function["parameters"] = {"type": "object", "properties": {}}
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _effort(effort: str | None, template: Template) -> dict[str, Any]:
    """The variables by which templates take a reasoning effort; none where the request leaves it to the template."""
    if effort is None:
        return {}
    thinks = effort not in ("none", "minimal")
    values = {"reasoning_effort": effort, "enable_thinking": thinks, "thinking": thinks}
    return {name: value for name, value in values.items() if name in template.variables}


def _checked(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in kwargs:
        if name in RESERVED:
            raise InvalidRequest(
                f"chat_template_kwargs cannot set '{name}': the request has its own parameter for it.",
                param=f"chat_template_kwargs.{name}",
            )
    return kwargs


def _mark_end(messages: list[Message]) -> None:
    last = messages[-1] if messages else None
    if last is None or last["role"] != "assistant" or "tool_calls" in last:
        raise InvalidRequest(
            "There is no final message of the assistant to continue.",
            param="continue_final_message",
        )
    content = last["content"]
    if isinstance(content, str):
        last["content"] = content + _END
    else:
        last["content"] = [*content, {"type": "text", "text": _END}]


def _cut_at_end(text: str) -> str:
    end = text.rfind(_END)
    if end < 0:
        raise InvalidRequest(
            "This model's chat template does not show the final message, so it cannot be continued.",
            param="continue_final_message",
        )
    return text[:end]
