"""The renderer: converts a turn to a Harmony prompt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated

from msgspec import Meta, Struct

from gateway.sdk import (
    ConfigurationError,
    InvalidRequest,
    ModelContext,
    RenderedPrompt,
    Tail,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway.sdk.wire import items as wire
from gateway_harmony.calls import forced_header, is_built_in, is_family_name, written
from gateway_harmony.conversation import HarmonyConverter, message_text
from gateway_harmony.encoding import PromptEncoder
from gateway_harmony.markers import CALL, RETURN, START
from gateway_harmony.messages import HarmonyMessage
from gateway_harmony.preface import EFFORTS, Effort, developer_text, system_text

_STOPS = (RETURN, CALL)


class RendererConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[models.<model>.harmony]`."""

    model_identity: str = "You are ChatGPT, a large language model trained by OpenAI."
    """First line of the system message. System messages of clients do not replace it."""
    knowledge_cutoff: str = "2024-06"
    """The knowledge cutoff in the system message; empty to omit it."""
    date: str = "none"
    """Date that the model is given: "none", "today" (UTC) or an ISO date. It is that of the request, and stays the same until
    the answer is finished. A fixed date keeps prompt prefixes stable for the engine's prefix cache over midnight."""
    reasoning_effort: str = "medium"
    """Default reasoning effort: low, medium, high, or another value of the API (see the README)."""
    tools_without_choice: bool = True
    """Whether tools are declared to the model even if `tool_choice` is `none`, as vLLM does. It keeps prompt prefixes stable for
    the engine's cache. Calls that the model writes all the same are left out of the answer."""
    token_cache_bytes: Annotated[int, Meta(ge=0)] = 64 << 20
    """Maximum size of what is kept of earlier prompts, so that what is unchanged of a longer conversation is not tokenized
    again. 0 keeps nothing."""


class HarmonyRenderer:
    """Renders turns for one gpt-oss model; a `PromptRenderer`.

    Raises `ConfigurationError` if the engine has no tokenizer or a setting is invalid. Text from outside never becomes
    a special token.
    """

    def __init__(self, config: RendererConfig, context: ModelContext) -> None:
        _check(config, context.info.name)
        self._config = config
        self._encoder = PromptEncoder(
            context.tokenizer, context.info.name, cache_bytes=config.token_cache_bytes
        )
        ids = self._encoder.single(_STOPS)
        self._stop_ids = tuple(ids) if len(ids) == len(_STOPS) else ()
        self._stop_texts = () if self._stop_ids else _STOPS

    def knows_tool(self, name: str) -> bool:
        return is_family_name(name)

    def date_at(self, time: float) -> str | None:
        """The date that a request at this Unix time is given."""
        match self._config.date:
            case "none":
                return None
            case "today":
                return datetime.fromtimestamp(time, UTC).date().isoformat()
            case fixed:
                return fixed

    def render(self, turn: Turn) -> RenderedPrompt:
        _refuse(turn)
        messages = self.messages(turn)
        encoder = self._encoder
        tail: Tail = "unknown"
        prefill = ""
        last = self._continued(turn, messages)
        ids: list[int] = []
        for message in messages:
            encoder.add(
                ids,
                message.header,
                message.text,
                () if message is last else ((message.end, ""),),
                scope=turn.cache_scope,
            )
        if last is not None:
            tail = "reasoning" if last.is_thought else "text"
        elif turn.add_generation_prompt:
            forced = forced_header(turn)
            prefill = written(forced)
            ids += encoder.markup(((START, "assistant"), *forced))
        return RenderedPrompt(
            prompt=TokensPrompt(token_ids=ids),
            tail=tail,
            prefill=prefill,
            stop=self._stop_texts,
            stop_token_ids=self._stop_ids,
        )

    def messages(self, turn: Turn) -> list[HarmonyMessage]:
        """The whole prompt as messages: system, developer, and the part of the conversation that is kept."""
        tools = turn.tools
        if turn.tool_choice == "none" and not self._config.tools_without_choice:
            tools = ()
        built_in = [tool for tool in tools if is_built_in(tool)]
        functions = [tool for tool in tools if not is_built_in(tool)]
        leading = _leading(turn.items)
        instructions = [turn.instructions] if turn.instructions else []
        for index, item in enumerate(turn.items[:leading]):
            assert isinstance(item, wire.Message), "see _leading"
            instructions.append(message_text(item.content, ("input", index)))
        conversation = HarmonyConverter(turn.tools, turn.results)
        conversation.read(turn.items[leading:], leading)
        messages = [self._system(turn, built_in, has_functions=bool(functions))]
        text = developer_text("\n\n".join(filter(None, instructions)), functions, turn.text_format)
        if text:
            messages.append(HarmonyMessage(author="developer", text=text))
        messages += map(_as_developer_message, _without_old_thoughts(conversation.messages, turn))
        return messages

    def _system(
        self, turn: Turn, built_in: Sequence[ToolDefinition], *, has_functions: bool
    ) -> HarmonyMessage:
        config = self._config
        identity = turn.chat_template_kwargs.get("model_identity", config.model_identity)
        if not isinstance(identity, str):
            raise InvalidRequest(
                "model_identity must be a string.", param=("chat_template_kwargs", "model_identity")
            )
        text = system_text(
            identity=identity or None,
            knowledge_cutoff=config.knowledge_cutoff or None,
            today=turn.today,
            effort=self._effort(turn),
            built_in=built_in,
            has_functions=has_functions,
        )
        return HarmonyMessage(author="system", text=text)

    def _effort(self, turn: Turn) -> Effort:
        if turn.reasoning_effort is not None:
            asked, param = turn.reasoning_effort, ("reasoning", "effort")
        else:
            asked = turn.chat_template_kwargs.get("reasoning_effort", self._config.reasoning_effort)
            param = ("chat_template_kwargs", "reasoning_effort")
        effort = EFFORTS.get(asked) if isinstance(asked, str) else None
        if effort is None:
            raise InvalidRequest(
                f"Reasoning effort {asked!r} is not known. Use one of: {', '.join(EFFORTS)}.",
                param=param,
            )
        return effort

    def _continued(self, turn: Turn, messages: Sequence[HarmonyMessage]) -> HarmonyMessage | None:
        """The message that the output continues, or None."""
        if not turn.continue_final_message:
            return None
        last = messages[-1]
        if last.author != "assistant" or last.recipient is not None:
            raise InvalidRequest(
                "continue_final_message requires a conversation that ends with an assistant message.",
                param="continue_final_message",
            )
        return last


def _check(config: RendererConfig, model: str) -> None:
    where = f"models.{model}.harmony"
    if config.reasoning_effort not in EFFORTS:
        raise ConfigurationError(
            f"{where}.reasoning_effort: {config.reasoning_effort!r} is not one of {', '.join(EFFORTS)}."
        )
    if config.date not in ("none", "today"):
        try:
            date.fromisoformat(config.date)
        except ValueError:
            raise ConfigurationError(
                f'{where}.date: {config.date!r} is not "none", "today" or a date such as "2025-06-28".'
            ) from None


def _refuse(turn: Turn) -> None:
    if turn.chat_template is not None:
        raise InvalidRequest(
            "This model's prompts are not made with a chat template. Leave it out.",
            param="chat_template",
        )
    if turn.documents:
        raise InvalidRequest(
            "This model's prompt has no place for documents. Send them as text.", param="documents"
        )


def _leading(items: Sequence[wire.Item]) -> int:
    """Number of leading system and developer messages; these are instructions."""
    for index, item in enumerate(items):
        if not isinstance(item, wire.Message) or item.role not in ("system", "developer"):
            return index
    return len(items)


def _as_developer_message(message: HarmonyMessage) -> HarmonyMessage:
    """A developer message within the conversation, with the heading that the first one has."""
    if message.author != "developer":
        return message
    return HarmonyMessage(author="developer", text=f"# Instructions\n\n{message.text}")


def _without_old_thoughts(messages: Sequence[HarmonyMessage], turn: Turn) -> list[HarmonyMessage]:
    """Drop chain of thought that led to a final message. That of a running tool loop is kept."""
    end = len(messages) - turn.continue_final_message
    last = max((i for i in range(end) if messages[i].is_final), default=-1)
    return [message for i, message in enumerate(messages) if i > last or not message.is_thought]
