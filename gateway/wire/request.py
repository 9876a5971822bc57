"""Decoding requests, with errors that name the invalid parameter."""

from __future__ import annotations

from collections.abc import Set
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from gateway.base.errors import InvalidRequest, ParamPath, param_text
from gateway.wire.common import Includable, JsonObject, Value, Wire
from gateway.wire.content import InputFile, InputImage, InputText
from gateway.wire.decoding import convert, decode_object, members, one_of
from gateway.wire.field_errors import missing, shortened, wrong_type
from gateway.wire.item_decoding import decode_items
from gateway.wire.items import Item
from gateway.wire.parameter_table import RESPONSES
from gateway.wire.parameters import SharedParameters
from gateway.wire.refusals import unknown_names
from gateway.wire.response import ConversationReference, ServiceTier
from gateway.wire.sampling import Count
from gateway.wire.strict import check_response, unknown_parameter
from gateway.wire.text import ReasoningOptions, TextConfig
from gateway.wire.tools import Tool, ToolChoice, decode_tool_choice, decode_tools
from gateway.wire.unknown_members import unknown_member


class StreamOptions(Value, frozen=True, kw_only=True):
    include_obfuscation: bool | None = None


class ContextManagement(Value, frozen=True, kw_only=True):
    type: Literal["compaction"]
    compact_threshold: Count | None = None


class BackgroundOptions(Value, frozen=True, kw_only=True):
    """When a background response is needed. It starts as soon as possible, which satisfies any window."""

    completion_window: Literal["soonest", "2h", "8h"] | None = None
    continuation_id: str | None = None


PromptPart: TypeAlias = InputText | InputImage | InputFile
PromptVariable: TypeAlias = str | PromptPart
_PROMPT_PARTS = members(PromptPart)


class Prompt(Value, frozen=True, kw_only=True):
    """A stored prompt template."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    version: Annotated[str, Meta(max_length=64)] | None = None
    variables: dict[str, PromptVariable] | None = None


class PromptCacheOptions(Value, frozen=True, kw_only=True):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m", "12h"] | None = None
    comparison_response_id: str | None = None
    prewarm: bool | None = None


class ResponseRequest(SharedParameters, kw_only=True, omit_defaults=True, dict=True):
    """The body of `POST /v1/responses`, and of related endpoints that use a subset of it."""

    model: str | None = None
    input: list[Item] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
    prompt: Prompt | None = None
    background: bool | None = None
    background_options: BackgroundOptions | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    include: list[Includable] | None = None
    max_output_tokens: Count | None = None
    max_tool_calls: Count | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    service_tier: ServiceTier | None = None
    text: TextConfig = TextConfig()
    tool_choice: ToolChoice | None = None
    tools: list[Tool] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    context_management: list[ContextManagement] | None = None
    moderation: JsonObject | None = None
    client_metadata: JsonObject | None = None
    access_programs: JsonObject | None = None
    image: JsonObject | None = None
    generate: bool | None = None
    stream_id: str | None = None

    @property
    def conversation_id(self) -> str | None:
        """The conversation's id, sent as a string or in an object."""
        if isinstance(self.conversation, ConversationReference):
            return self.conversation.id
        return self.conversation

    @property
    def generates(self) -> bool:
        """Whether the model is called at all. If not, the response only extends its conversation."""
        cache = self.prompt_cache_options
        return self.generate is not False and not (cache is not None and cache.prewarm)


def decode_response_request(
    body: bytes,
    *,
    require_input: bool = True,
    strict: bool = False,
    known: Set[str] = RESPONSES.openai,
) -> ResponseRequest:
    """Decode the request. Raises `InvalidRequest` with the path of the invalid parameter.

    `require_input` is False for endpoints whose input is optional. `strict` rejects what OpenAI rejects, such as
    parameters other than `known`.
    """
    raw = decode_object(body)
    return convert_response_request(raw, require_input=require_input, strict=strict, known=known)


def convert_response_request(
    raw: dict[str, Any],
    *,
    require_input: bool = True,
    strict: bool = False,
    known: Set[str] = RESPONSES.openai,
) -> ResponseRequest:
    """Convert a request that is plain JSON, like `decode_response_request`. For the WebSocket, which removes `type`
    first. `raw` is not modified."""
    if strict:
        check_response(raw, requires_input=require_input, known=known)
        members = {name: value for name, value in raw.items() if name in RESPONSES.openai}
        if (place := unknown_member(members, ResponseRequest)) is not None:
            raise unknown_parameter(place)
    given = {key: value for key, value in raw.items() if value is not None}
    sent_input = given.pop("input", None)
    sent_tools = given.pop("tools", None)
    sent_choice = given.pop("tool_choice", None)
    sent_metadata = given.pop("metadata", None)
    sent_prompt = given.pop("prompt", None)
    request = convert(given, ResponseRequest)
    if sent_input is not None:
        request.input = decode_items(sent_input)
    if sent_tools is not None:
        request.tools = decode_tools(sent_tools)
    if sent_choice is not None:
        request.tool_choice = decode_tool_choice(sent_choice)
    if sent_metadata is not None:
        request.metadata = decode_metadata(sent_metadata)
    if sent_prompt is not None:
        request.prompt = _decode_prompt(sent_prompt)
    _note_without_effect(request)
    if not raw.keys() <= RESPONSES.known:
        request.unknown.extend(unknown_names(raw, RESPONSES.known))
    if require_input:
        _require_input(request)
    return request


def _note_without_effect(request: ResponseRequest) -> None:
    """Report members of options and of tools that have no effect, as unknown parameters are reported."""
    if (cache := request.prompt_cache_options) is not None:
        if cache.comparison_response_id is not None:
            request.unknown.append("prompt_cache_options.comparison_response_id")
        if cache.prewarm:
            request.unknown.append("prompt_cache_options.prewarm")
    if request.tools and any(getattr(tool, "async_", None) is True for tool in request.tools):
        request.unknown.append("tools.async")


def _decode_prompt(raw: Any) -> Prompt:
    if not isinstance(raw, dict):
        raise wrong_type("prompt", "an object", raw)
    variables = raw.get("variables")
    if variables is not None and not isinstance(variables, dict):
        raise wrong_type(("prompt", "variables"), "an object", variables)
    named = convert({**raw, "variables": None}, Prompt, "prompt")
    if variables is None:
        return named
    return msgspec.structs.replace(
        named,
        variables={
            name: _decode_variable(value, ("prompt", "variables", shortened(name)))
            for name, value in variables.items()
        },
    )


def _decode_variable(raw: Any, param: ParamPath) -> PromptVariable:
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, dict):
        raise wrong_type(param, "one of a string or object", raw)
    decoded: PromptPart = convert(raw, one_of(_PROMPT_PARTS, raw, param), param)
    return decoded


def _require_input(request: ResponseRequest) -> None:
    if request.input is not None or request.prompt is not None:
        return
    if request.previous_response_id is None and request.conversation is None:
        hint = "Send a string or a list of items."
        if "messages" in request.unknown:
            hint = "Here it is 'input', not 'messages', which /v1/chat/completions takes."
        raise missing("input", hint)


def decode_metadata(raw: Any, param: ParamPath = ("metadata",)) -> dict[str, str]:
    """Decode metadata: at most 16 pairs, with keys up to 64 characters and strings up to 512 (OpenAI's limits)."""
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    text = param_text(param)
    if len(raw) > 16:
        raise InvalidRequest(
            f"Invalid '{text}': too many properties. Expected an object with at most 16 properties, but got an object "
            f"with {len(raw)} properties instead.",
            param=param,
            code="object_above_max_properties",
        )
    for key, value in raw.items():
        if len(key) > 64:
            raise InvalidRequest(
                f"Invalid '{text}': the key '{shortened(key)}' is too long. "
                f"Expected a string with maximum length 64, but got a string with length {len(key)} instead.",
                param=param,
                code="string_above_max_length",
            )
        if not isinstance(value, str):
            raise wrong_type((*param, key), "a string", value)
        if len(value) > 512:
            raise InvalidRequest(
                f"Invalid '{text}.{key}': string too long. "
                f"Expected a string with maximum length 512, but got a string with length {len(value)} instead.",
                param=(*param, key),
                code="string_above_max_length",
            )
    return raw


# Conversations.


class ConversationRequest(Wire, kw_only=True):
    """The body of `POST /v1/conversations`, `POST /v1/conversations/{id}` and `POST …/items`.

    None means that the field was missing, and for items also that it was null.
    """

    items: list[Item] | None = None
    metadata: dict[str, str] | None = None


def decode_conversation_request(
    body: bytes, *, require: Literal["items", "metadata"] | None = None
) -> ConversationRequest:
    """Decode the request, which must have the field `require`; null means no metadata, but not a list of items. An empty
    body is an empty request."""
    raw = decode_object(body) if body.strip() else {}
    request = ConversationRequest()
    if raw.get("items") is not None:
        if not isinstance(raw["items"], list):
            raise wrong_type("items", "an array of items", raw["items"])
        request.items = decode_items(raw["items"], ("items",))
    if "metadata" in raw:
        request.metadata = {} if raw["metadata"] is None else decode_metadata(raw["metadata"])
    if require is not None and getattr(request, require) is None:
        raise missing(require)
    return request
