"""Chat Completions: the request, its tools, and the non-streaming answer. `gateway.answers.chat.chunks` builds chunks."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from gateway.base.errors import InvalidRequest
from gateway.wire.chat_messages import (
    CalledCustom,
    CalledFunction,
    Message,
    TextPart,
    decode_messages,
)
from gateway.wire.chat_tools import (
    decode_chat_choice,
    decode_chat_tools,
    decode_function_call,
    decode_functions,
)
from gateway.wire.common import JsonObject, ReasoningEffort, Tagged, Value
from gateway.wire.content import Logprob
from gateway.wire.decoding import convert, decode_object
from gateway.wire.field_errors import missing
from gateway.wire.parameter_table import CHAT
from gateway.wire.refusals import unknown_names
from gateway.wire.request import PromptCacheOptions, decode_metadata
from gateway.wire.response import ServiceTier
from gateway.wire.sampling import Count
from gateway.wire.strict import check_chat
from gateway.wire.structured import StructuredParameters
from gateway.wire.timings import RequestMetrics, Timings
from gateway.wire.tools import Tool, ToolChoice, UserLocation

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class Prediction(Tagged, frozen=True, kw_only=True, tag="content"):
    """The expected content of the answer."""

    content: str | list[TextPart]


class SearchLocation(Value, frozen=True, kw_only=True):
    type: Literal["approximate"] = "approximate"
    approximate: UserLocation


class WebSearchOptions(Value, frozen=True, kw_only=True):
    """Requests a web search, like the `web_search` tool of the Responses API."""

    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: SearchLocation | None = None


class ChatReasoning(Value, frozen=True, kw_only=True):
    """Settings of the reasoning in one object, as in OpenRouter's API. Each is equivalent to a parameter at the top
    level."""

    effort: ReasoningEffort | None = None
    """Equivalent to `reasoning_effort`."""
    max_tokens: Count | None = None
    """Equivalent to `thinking_token_budget`."""
    enabled: bool | None = None
    """False means the effort `none`. True means the effort `medium`, unless another member sets an effort or a
    limit."""
    exclude: bool | None = None
    """True is equivalent to `include_reasoning: false`."""


class ChatRequest(StructuredParameters, kw_only=True, omit_defaults=True, dict=True):
    """The body of `POST /v1/chat/completions`. None means that the field was missing or null."""

    messages: list[Message] = []
    audio: JsonObject | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_completion_tokens: Count | None = None
    max_tokens: Count | None = None
    metadata: dict[str, str] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    moderation: JsonObject | None = None
    parallel_tool_calls: bool | None = None
    prediction: Prediction | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    reasoning: ChatReasoning | None = None
    reasoning_effort: ReasoningEffort | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    service_tier: ServiceTier | None = None
    store: bool | None = None
    tool_choice: ToolChoice | None = None
    tools: list[Tool] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    web_search_options: WebSearchOptions | None = None

    @property
    def legacy(self) -> bool:
        """Whether the request uses `functions`, so that the answer must use `function_call`."""
        return bool(self.__dict__.get("legacy_functions"))

    @property
    def sent(self) -> JsonObject:
        """The body as received, to be stored with the answer. Only requests with `store` have it."""
        found: JsonObject = self.__dict__["sent_body"]
        return found


SWITCH = "enable_thinking"
"""Turns reasoning on and off in Qwen's own API. Clients that were written for that API send it to other servers too.
OpenAI does not have this parameter; vLLM's server has it in `chat_template_kwargs` only."""


def decode_chat_request(body: bytes, *, strict: bool = False) -> ChatRequest:
    """Decode the request. Raises `InvalidRequest` with the path of the invalid parameter. `strict` rejects what OpenAI
    rejects."""
    raw = decode_object(body)
    if strict:
        check_chat(raw)
    return convert_chat_request(raw, strict=strict)


def convert_chat_request(raw: JsonObject, *, strict: bool = False) -> ChatRequest:
    """Like `decode_chat_request`, from plain JSON, which is not modified."""
    given = {key: value for key, value in raw.items() if value is not None}
    sent_messages = given.pop("messages", None)
    sent_tools = given.pop("tools", None)
    sent_choice = given.pop("tool_choice", None)
    sent_functions = given.pop("functions", None)
    sent_call = given.pop("function_call", None)
    sent_metadata = given.pop("metadata", None)
    request = convert(given, ChatRequest)
    if sent_messages is None:
        hint = "Send a list of messages."
        if "input" in given:
            hint = "Here it is 'messages', not 'input', which /v1/responses takes."
        raise missing("messages", hint)
    request.messages = decode_messages(sent_messages, strict=strict)
    if not request.messages:
        raise InvalidRequest(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="messages",
            code="empty_array",
        )
    if sent_tools is not None:
        request.tools = decode_chat_tools(sent_tools)
    if sent_choice is not None:
        request.tool_choice = decode_chat_choice(sent_choice)
    if sent_functions is not None or sent_call is not None:
        if sent_tools is not None or sent_choice is not None:
            raise InvalidRequest(
                "Mutually exclusive parameters: 'functions' is the older form of 'tools'. Send one of them.",
                param="functions" if sent_functions is not None else "function_call",
                code="mutually_exclusive_parameters",
            )
        request.__dict__["legacy_functions"] = True
        request.tools = decode_functions([] if sent_functions is None else sent_functions)
        request.tool_choice = None if sent_call is None else decode_function_call(sent_call)
    if sent_metadata is not None:
        request.metadata = decode_metadata(sent_metadata)
    if request.reasoning is not None:
        _take_reasoning(request, request.reasoning)
    if request.store:
        request.__dict__["sent_body"] = raw
    taken = SWITCH not in raw or _take_switch(request, raw[SWITCH])
    if not (taken and raw.keys() <= CHAT.known):
        request.unknown.extend(unknown_names(raw, CHAT.known if taken else CHAT.known - {SWITCH}))
    return request


def _take_switch(request: ChatRequest, on: object) -> bool:
    """Turn reasoning on or off with the switch of Qwen's own API. Returns False, and changes nothing, if another
    parameter takes precedence or contradicts it."""
    if not isinstance(on, bool) or request.reasoning is not None:
        return False
    if not {"enable_thinking", "thinking"}.isdisjoint(request.chat_template_kwargs or ()):
        return False
    if request.reasoning_effort is not None:
        return on == (request.reasoning_effort != "none")
    request.reasoning_effort = "medium" if on else "none"
    return True


def _take_reasoning(request: ChatRequest, reasoning: ChatReasoning) -> None:
    """Set the parameters that are equivalent to the members of `reasoning`. Raises `InvalidRequest` if they were also
    sent with different values, or if the members contradict each other."""
    effort = reasoning.effort
    if reasoning.enabled is False:
        if effort not in (None, "none") or reasoning.max_tokens is not None:
            raise InvalidRequest(
                "reasoning.enabled is false, but there is an effort or a limit of tokens too. Send one of them.",
                param=("reasoning", "enabled"),
            )
        effort = "none"
    elif reasoning.enabled and effort is None and reasoning.max_tokens is None:
        effort = request.reasoning_effort or "medium"
    shown = False if reasoning.exclude else None
    _same(request, "reasoning_effort", effort, "effort" if reasoning.effort else "enabled")
    _same(request, "thinking_token_budget", reasoning.max_tokens, "max_tokens")
    _same(request, "include_reasoning", shown, "exclude")


def _same(request: ChatRequest, name: str, value: object, member: str) -> None:
    if value is None:
        return
    if getattr(request, name) not in (None, value):
        raise InvalidRequest(
            f"reasoning.{member} and {name} are the same setting, and have different values. Send one of them.",
            param=("reasoning", member),
        )
    setattr(request, name, value)


# The answer.


class MessageToolCall(Value, frozen=True, kw_only=True):
    """A call in the answer, of a function or a custom tool."""

    id: str
    type: Literal["function", "custom"] = "function"
    function: CalledFunction | UnsetType = UNSET
    custom: CalledCustom | UnsetType = UNSET


class AnnotatedUrl(Value, frozen=True, kw_only=True):
    """Indices count the characters (Unicode code points) of the content, `end_index` exclusive."""

    end_index: int
    start_index: int
    title: str
    url: str


class UrlAnnotation(Value, frozen=True, kw_only=True):
    type: Literal["url_citation"] = "url_citation"
    url_citation: AnnotatedUrl


class AnswerMessage(Value, frozen=True, kw_only=True):
    """`content` is null if the model wrote no text."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None
    annotations: list[UrlAnnotation] = []
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    tool_calls: list[MessageToolCall] | UnsetType = UNSET
    function_call: CalledFunction | UnsetType = UNSET


class ChoiceLogprobs(Value, frozen=True, kw_only=True):
    content: list[Logprob]
    refusal: None = None


class Choice(Value, frozen=True, kw_only=True):
    """The fields after `finish_reason` are vLLM's, and are omitted if not requested or unknown."""

    index: int
    message: AnswerMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason
    stop_reason: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class PromptTokensDetails(Value, frozen=True, kw_only=True):
    cached_tokens: int = 0
    audio_tokens: int = 0


class CompletionTokensDetails(Value, frozen=True, kw_only=True):
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class CompletionUsage(Value, frozen=True, kw_only=True):
    """Token counts over all generations and choices. A prompt that choices share is counted once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails = PromptTokensDetails()
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()


class PromptLogprob(Value, frozen=True, kw_only=True):
    """One candidate token at a position of the prompt. `rank` starts at 1, and is null if unknown."""

    logprob: float
    rank: int | None
    decoded_token: str


class ChatCompletion(Value, frozen=True, kw_only=True):
    """The non-streaming answer. The last fields are vLLM's and llama.cpp's, present if requested."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage
    service_tier: ServiceTier = "default"
    system_fingerprint: str | None = None
    prompt_logprobs: list[dict[int, PromptLogprob] | None] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET
    kv_transfer_params: JsonObject | UnsetType = UNSET
