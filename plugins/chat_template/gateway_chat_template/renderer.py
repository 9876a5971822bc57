"""The renderer: converts a turn to text and tokens with the model's own chat template."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, tzinfo
from functools import lru_cache
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from gateway.sdk import (
    ConfigurationError,
    InvalidRequest,
    Media,
    MediaKind,
    MediaSource,
    ModelContext,
    ModelInfo,
    OutputFormat,
    PlacedMedia,
    RenderedPrompt,
    Tail,
    TokensPrompt,
    ToolDefinition,
    Turn,
    Unsupported,
)
from gateway.sdk.engines import Origin, OriginEncoder
from gateway.sdk.wire import items as wire
from gateway_chat_template.calls_as_text import WriteCalls, call_writer, write_as_json
from gateway_chat_template.conversation import MessageMedia, conversation
from gateway_chat_template.environment import (
    RESERVED,
    SYNTAX_ERRORS,
    Template,
    TemplateRefusal,
    TemplateTooLong,
    told,
)
from gateway_chat_template.features import PARTS, Features, add_xml_tools, find_features
from gateway_chat_template.implied import implied as _implied
from gateway_chat_template.isolated import IsolatedTemplates
from gateway_chat_template.marked_text import (
    AssistantText,
    MarkedText,
    OutsideText,
    concat,
    mark_outside,
    parts_of,
)
from gateway_chat_template.media_marks import mark_of, without_marks
from gateway_chat_template.messages import MEDIA, Message, messages_of
from gateway_chat_template.placeholders import find_placeholders, placed_at_placeholders
from gateway_chat_template.plain_messages import plain_messages
from gateway_chat_template.tail import THINKING_MARKERS, TailFinder
from gateway_chat_template.tools import ToolForms

_END = "\u2060\u2063qz-here-the-final-message-ends\u2063\u2060"
"""Sentinel at the end of a message that is to be continued. Occurs in no text."""
_MAX_TEMPLATE = 1_000_000
_SHARE_OF_TOOLS = 8
"""One of so many parts of `token_cache_bytes` keeps tools."""
_IN_THREAD = 200_000
"""Length in characters above which a prompt is tokenized in a thread, not on the event loop."""


class ChatTemplateConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[models.<model>.chat_template]`."""

    date: str = "today"
    """Date that the template is given, as `strftime_now`: "today", "none" or an ISO date such as "2026-01-31". It is that of the
    request, and stays the same until the answer is finished. A fixed date keeps prompt prefixes stable for the engine's cache
    over midnight. With "none", a template that names a date without asking whether there is one names none."""
    time_zone: str = "UTC"
    """Time zone in which it is today, by its IANA name, such as "Europe/Berlin"."""
    tools_without_choice: bool = True
    """Whether tools are passed to the template even if `tool_choice` is `none`, as Transformers and vLLM do. It keeps prompt
    prefixes stable for the engine's cache. Calls that the model writes all the same are left out of the answer."""
    max_characters: int = 50_000_000
    """Maximum length of a prompt, in characters."""
    token_cache_bytes: Annotated[int, Meta(ge=0)] = 64 << 20
    """Maximum size of what is kept of earlier prompts, so that what is unchanged of a longer conversation is not tokenized
    again, and the same tools are not written again. 0 keeps nothing."""
    thinking_markers: list[tuple[str, str]] = []
    """Additional pairs of reasoning markers, for models whose own are not built in."""


class PreparedTemplate(Struct, frozen=True):
    """A template and its features."""

    template: Template
    features: Features


class ChatTemplateRenderer:
    """Renders with the model's chat template, or with the request's if the configuration allows that.

    Raises `ConfigurationError` for a model without a chat template or tokenizer, or whose template is malformed.
    """

    def __init__(self, config: ChatTemplateConfig, context: ModelContext) -> None:
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
        self._zone = _checked_zone(config, info.name)
        self._date = (-1.0, "")
        """The last date that was asked for, and the quarter of an hour of its time."""
        self._write_calls: WriteCalls = write_as_json
        self._trusted = context.trust_request_chat_template
        self._tokens = _special_tokens(info)
        self._tails = TailFinder((*map(tuple, config.thinking_markers), *THINKING_MARKERS))
        try:
            self._model_template = _prepare_for_model(info.chat_template, *self._tokens.items())
            self._tool_template = (
                _prepare_for_model(info.tool_chat_template, *self._tokens.items())
                if info.tool_chat_template
                else None
            )
        except SYNTAX_ERRORS as error:
            raise ConfigurationError(
                f"The chat template of model {info.name!r} is malformed: {error.message} (line {error.lineno})."
            ) from error
        self._uses_marks = info.placeholders == "none"
        self._placeholders = (
            {}
            if self._uses_marks
            else find_placeholders(self._model_template.features, context.tokenizer)
        )
        for_tools = config.token_cache_bytes // _SHARE_OF_TOOLS
        self._encoder = OriginEncoder(
            context.tokenizer,
            template=info.chat_template + (info.tool_chat_template or ""),
            markers=[marker for pair in config.thinking_markers for marker in pair],
            placeholders=[each.text for each in self._placeholders.values()],
            cache_bytes=config.token_cache_bytes - for_tools,
        )
        self._tools = ToolForms(for_tools)
        self._prepare_request = lru_cache(maxsize=16)(self._prepare)
        self._isolated = IsolatedTemplates(self._tokens, config.max_characters)

    @property
    def features(self) -> Features:
        """Features of the model's own template."""
        return self._model_template.features

    @property
    def media_kinds(self) -> frozenset[MediaKind]:
        """The kinds of media that it places in prompts made with the model's own template."""
        return self._kinds(self._model_template.features)

    def _kinds(self, features: Features) -> frozenset[MediaKind]:
        if self._uses_marks:
            return frozenset[MediaKind](("image", "audio") if features.marks else ())
        shown: dict[MediaKind, str | None] = {"image": features.image, "audio": features.audio}
        return frozenset(kind for kind in self._placeholders if shown[kind] is not None)

    def use_format(self, output_format: OutputFormat) -> None:
        """Write earlier calls in this format, for templates that print only the content of messages."""
        self._write_calls = call_writer(output_format)

    def date_at(self, time: float) -> str | None:
        """The date that a request at this Unix time is given."""
        match self._config.date:
            case "none":
                return None
            case "today":
                # Of all zones, the difference from UTC is a multiple of a quarter of an hour.
                quarter = time // 900
                known, date = self._date
                if quarter != known:
                    date = datetime.fromtimestamp(time, self._zone).date().isoformat()
                    self._date = quarter, date
                return date
            case fixed:
                return fixed

    def render(self, turn: Turn) -> RenderedPrompt:
        text, media = self._render(turn)
        return self._prompt(text, media, turn)

    async def render_isolated(self, turn: Turn) -> RenderedPrompt:
        """Like `render`, with the request's template evaluated in a process that can be killed."""
        source = self._checked_source(turn)
        template = await self._isolated.inspect(source)
        variables, media = self._variables(turn, template.features, template.variables)
        text = await self._isolated.render(source, variables, turn.today)
        if turn.continue_final_message:
            text = _cut_at_end(text)
        if len(text) > _IN_THREAD:
            return await asyncio.to_thread(self._prompt, text, media, turn)
        return self._prompt(text, media, turn)

    def _prompt(self, text: str, media: Sequence[MessageMedia], turn: Turn) -> RenderedPrompt:
        return RenderedPrompt(
            prompt=self._tokens_of(text, media, turn.cache_scope), tail=self._tail(text, turn)
        )

    def _tokens_of(
        self, text: str, media: Sequence[MessageMedia], scope: str | None
    ) -> TokensPrompt:
        encode = self._encoder.encode
        if not media:
            return TokensPrompt(token_ids=encode(parts_of(text), scope=scope))
        if not self._uses_marks:
            token_ids = encode(parts_of(text), scope=scope)
            return TokensPrompt(
                token_ids=token_ids,
                media=placed_at_placeholders(token_ids, media, self._placeholders),
            )
        token_ids = []
        placed: list[PlacedMedia] = []
        missing = dict(enumerate(media))
        for stretch in without_marks(text):
            token_ids += encode(stretch.parts, scope=scope)
            if stretch.index is not None and stretch.index < len(media):
                placed.append(media[stretch.index].placed(len(token_ids)))
                missing.pop(stretch.index, None)
        for shown in missing.values():
            raise InvalidRequest(
                f"The model's chat template does not show this {shown.media.kind}.",
                param=shown.param,
            )
        return TokensPrompt(token_ids=token_ids, media=placed)

    def render_text(self, turn: Turn) -> str:
        """The prompt as text, before tokenization, without images and sounds."""
        return "".join(stretch.text for stretch in without_marks(self._render(turn)[0]))

    def _tail(self, text: str, turn: Turn) -> Tail:
        tail = self._tails.tail_of(_without_trailing_user_text(text))
        return "text" if turn.continue_final_message and tail == "unknown" else tail

    def _render(self, turn: Turn) -> tuple[str, list[MessageMedia]]:
        prepared = self._prepared(turn)
        variables, media = self._variables(turn, prepared.features, prepared.template.variables)
        text = self._run(prepared.template, variables, turn.today)
        if turn.continue_final_message:
            text = _cut_at_end(text)
        return text, media

    def _variables(
        self, turn: Turn, features: Features, names: Collection[str]
    ) -> tuple[dict[str, Any], list[MessageMedia]]:
        """The template's input, limited to the variables `names`, and the images and sounds."""
        tools = self._shown_tools(turn, features, names)
        if tools and not features.tools:
            raise InvalidRequest(
                "This model's chat template has no place for tools. Leave them out, or use another model.",
                param="tools",
            )
        if turn.documents and "documents" not in names:
            raise Unsupported(
                "This model's chat template has no place for documents. Send them as text.",
                param="documents",
            )
        media: list[MessageMedia] = []
        messages = plain_messages(turn.items, turn.instructions, features)
        if messages is None:
            entries = conversation(
                turn.items,
                {tool.name for tool in turn.tools},
                turn.results,
                self._placeable(turn.media, features) if turn.media else {},
            )
            messages, media = messages_of(entries, turn.instructions, features, self._write_calls)
            for message in messages:
                _mark(message)
        if media:
            self._show(media, messages, features)
        if turn.continue_final_message:
            _mark_end(messages)
        kwargs, documents = turn.chat_template_kwargs, turn.documents
        scope = turn.cache_scope if turn.chat_template is None else None
        variables = {
            **self._tokens,
            **_implied(turn, names),
            **(mark_outside(dict(_checked(kwargs))) if kwargs else {}),
            "messages": messages,
            "tools": (
                self._tools.of(tools, scope, described=features.described_tools)
                if tools
                else None
                if features.no_tools == "none"
                else []
            ),
            "documents": mark_outside(list(documents)) if documents else None,
            "add_generation_prompt": turn.add_generation_prompt and not turn.continue_final_message,
        }
        add_xml_tools(variables, names)
        return variables, media

    def _shown_tools(
        self, turn: Turn, features: Features, names: Collection[str]
    ) -> Sequence[ToolDefinition]:
        """The tools that the model reads of. If it may call none, a template without a place for them gets none, nor do others by
        configuration, unless they tell so themselves or need some."""
        if turn.tool_choice != "none":
            return turn.tools
        told = (
            self._config.tools_without_choice
            or "tool_choice" in names
            or features.no_tools == "needed"
        )
        return turn.tools if told and features.tools else ()

    def _placeable(
        self, media: Mapping[MediaSource, Media], features: Features
    ) -> Mapping[MediaSource, Media]:
        kinds = self._kinds(features)
        return {source: each for source, each in media.items() if each.kind in kinds}

    def _show(
        self, media: Sequence[MessageMedia], messages: Sequence[Message], features: Features
    ) -> None:
        """Replace the parts that stand for media by the template's own, or by marks."""
        for message in messages:
            content = message["content"]
            if not isinstance(content, list) or not any(MEDIA in part for part in content):
                continue
            parts = [
                part if MEDIA not in part else self._part(part[MEDIA], media, features)
                for part in content
            ]
            if self._uses_marks and features.text:
                between = "" if message["role"] in features.several_parts else "\n"
                message["content"] = _as_text(content, parts, between)
            else:
                message["content"] = parts

    def _part(
        self, index: int, media: Sequence[MessageMedia], features: Features
    ) -> dict[str, Any]:
        if self._uses_marks:
            return {"type": "text", "text": mark_of(index)}
        kind = features.image if media[index].media.kind == "image" else features.audio
        assert kind is not None, "only media that the template can show are in messages"
        return dict(PARTS[kind])

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
            # Templates reject input by raising arbitrary exceptions.
            raise InvalidRequest(
                "The model's chat template failed on this conversation:"
                f" {type(error).__name__}: {told(str(error))}",
                param="input",
            ) from error

    def _prepared(self, turn: Turn) -> PreparedTemplate:
        if turn.chat_template is None:
            return self._own_template(turn)
        try:
            return self._prepare_request(self._checked_source(turn))
        except SYNTAX_ERRORS as error:
            raise InvalidRequest(
                f"The chat template is malformed: {error.message} (line {error.lineno}).",
                param="chat_template",
            ) from None

    def _own_template(self, turn: Turn) -> PreparedTemplate:
        """The model's template for `turn`: of two, the one for tools if there are some, or if only that one shows earlier calls."""
        own, with_tools = self._model_template, self._tool_template
        if with_tools is None:
            return own
        suits = with_tools.features.tools or not own.features.tools
        names = with_tools.template.variables
        if turn.tools and suits and self._shown_tools(turn, with_tools.features, names):
            return with_tools
        if own.features.calls or not with_tools.features.calls:
            return own
        has_calls = any(
            isinstance(item, wire.FunctionCall | wire.CustomToolCall) for item in turn.items
        )
        return with_tools if has_calls else own

    def _checked_source(self, turn: Turn) -> str:
        """The template of the request. Raises `InvalidRequest` if it is not allowed."""
        assert turn.chat_template is not None, "there is one"
        if not self._trusted:
            raise InvalidRequest(
                "This server does not accept chat templates from requests. Leave it out, or set"
                " trust_request_chat_template for the model.",
                param="chat_template",
            )
        if len(turn.chat_template) > _MAX_TEMPLATE:
            raise InvalidRequest(
                f"The chat template is longer than {_MAX_TEMPLATE} characters.",
                param="chat_template",
            )
        return turn.chat_template

    def _prepare(self, source: str) -> PreparedTemplate:
        return _prepare(source, self._tokens)


def _prepare(source: str, tokens: Mapping[str, str]) -> PreparedTemplate:
    template = Template(source)
    return PreparedTemplate(template, find_features(template, tokens))


@lru_cache(maxsize=32)
def _prepare_for_model(source: str, *tokens: tuple[str, str]) -> PreparedTemplate:
    """`_prepare`, once for all models with that template. It takes some hundredths of a second."""
    return _prepare(source, dict(tokens))


def _special_tokens(info: ModelInfo) -> dict[str, str]:
    return {"bos_token": info.bos_token or "", "eos_token": info.eos_token or ""}


def _as_text(
    content: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]], between: str
) -> str:
    """The texts of `parts`, those of media among them, with `between` where two of `content` are texts."""
    texts: list[str] = []
    for index, part in enumerate(parts):
        if index and MEDIA not in content[index] and MEDIA not in content[index - 1]:
            texts.append(between)
        texts.append(part["text"])
    return concat(texts)


def _mark(message: Message) -> None:
    """Mark the texts of a message with their origins. Roles and part types are the renderer's own."""
    own = message["role"] == "assistant"
    kind = AssistantText if own else OutsideText
    for key, value in message.items():
        if isinstance(value, str):
            if key != "role" and not isinstance(value, MarkedText):
                message[key] = kind(value)
        elif key == "content" and isinstance(value, list):
            message[key] = [_marked_part(part, own=own) for part in value]
        elif key == "tool_calls":
            message[key] = [_marked_call(call) for call in value]
        else:
            message[key] = mark_outside(value)


def _marked_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    return {
        **call,
        "id": OutsideText(call["id"]),
        "function": {
            "name": OutsideText(function["name"]),
            "arguments": mark_outside(arguments),
        },
    }


def _marked_part(part: Mapping[str, Any], *, own: bool) -> dict[str, Any]:
    kind = AssistantText if own else OutsideText
    return {
        key: value
        if key == "type" or isinstance(value, MarkedText)
        else kind(value)
        if isinstance(value, str)
        else mark_outside(value)
        for key, value in part.items()
    }


def _without_trailing_user_text(text: str) -> str:
    """Empty if the prompt ends with text from outside, whose trailing markers are not the template's."""
    if not isinstance(text, MarkedText):
        return text
    end = len(text)
    for length, origin in reversed(text.runs):
        if str.__getitem__(text, slice(end - length, end)).strip():
            return text if origin is not Origin.OUTSIDE else ""
        end -= length
    return ""


def _checked_zone(config: ChatTemplateConfig, model: str) -> tzinfo:
    """The time zone of the configuration, whose date is checked too."""
    where = f"models.{model}.chat_template"
    if config.date not in ("none", "today"):
        try:
            date.fromisoformat(config.date)
        except ValueError:
            raise ConfigurationError(
                f'{where}.date: {config.date!r} is not "none", "today" or a date such as "2025-06-28".'
            ) from None
    if config.time_zone == "UTC":
        return UTC
    try:
        return ZoneInfo(config.time_zone)
    except (OSError, ValueError, KeyError):  # an unknown zone is a `KeyError`
        raise ConfigurationError(
            f"{where}.time_zone: {config.time_zone!r} is not a time zone that this machine knows, such as"
            ' "UTC" or "Europe/Berlin".'
        ) from None


def _checked(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in kwargs:
        if name in RESERVED:
            raise InvalidRequest(
                f"chat_template_kwargs cannot set '{name}': the request has its own parameter for it.",
                param=("chat_template_kwargs", name),
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
        # Into the last text: what a template writes between parts belongs to the next one.
        text = concat([content[-1]["text"], _END]) if content else _END
        last["content"] = [*content[:-1], {"type": "text", "text": text}]


def _cut_at_end(text: str) -> str:
    ends = [at for at in (text.rfind(_END), _own_end(text)) if at >= 0]
    end = ends[-1] if ends else -1
    if end < 0:
        raise InvalidRequest(
            "This model's chat template does not show the final message, so it cannot be continued.",
            param="continue_final_message",
        )
    return text[:end]


def _own_end(text: str) -> int:
    """Position of the last sentinel written by the renderer itself."""
    found = at = -1
    for part, origin in parts_of(text):
        at = 0 if at < 0 else at
        if origin is Origin.TEMPLATE and (inside := part.rfind(_END)) >= 0:
            found = at + inside
        at += len(part)
    return found
