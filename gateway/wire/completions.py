"""Completions, the legacy API for raw prompts; and the tokenizer endpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.wire.chat import CompletionUsage, PromptLogprob
from gateway.wire.common import JsonObject, Value, Wire
from gateway.wire.decoding import convert, decode_object
from gateway.wire.field_errors import missing, wrong_type
from gateway.wire.parameter_table import COMPLETIONS
from gateway.wire.refusals import unknown_names
from gateway.wire.sampling import MAX_INT, Natural
from gateway.wire.strict import check_completion
from gateway.wire.structured import StructuredParameters
from gateway.wire.timings import RequestMetrics, Timings

Prompt: TypeAlias = str | list[int]
"""Text, or token ids."""

MAX_PROMPTS = 1024


class CompletionRequest(StructuredParameters, kw_only=True, omit_defaults=True, dict=True):
    """The body of `POST /v1/completions`. `prompts` is the normalized form of `prompt`."""

    prompts: list[Prompt] = []
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_tokens: Natural | None = None
    suffix: str | None = None
    prompt_embeds: Any = None


def decode_completion_request(body: bytes, *, strict: bool = False) -> CompletionRequest:
    """Decode the request. Raises `InvalidRequest` with the path of the invalid parameter. `strict` rejects what OpenAI
    rejects."""
    raw = decode_object(body)
    if strict:
        check_completion(raw)
    given = {key: value for key, value in raw.items() if value is not None}
    sent = given.pop("prompt", None)
    given.pop("prompts", None)  # not a parameter of the API
    request = convert(given, CompletionRequest)
    if "prompt_embeds" in given:  # it may be sent instead of the prompt
        raise COMPLETIONS.refusals["prompt_embeds"].error("prompt_embeds")
    if sent is None:
        raise missing("prompt", "Send a string, a list of token ids, or a list of either.")
    request.prompts = _prompts(sent)
    if not raw.keys() <= COMPLETIONS.known:
        request.unknown.extend(unknown_names(raw, COMPLETIONS.known))
    return request


def _prompts(raw: Any) -> list[Prompt]:
    if isinstance(raw, str):
        return [raw]
    if not isinstance(raw, list):
        raise wrong_type("prompt", "a string or token ids", raw)
    if not raw:
        raise InvalidRequest(
            "Invalid 'prompt': empty array. Expected at least one prompt or token.",
            param="prompt",
            code="empty_array",
        )
    if type(raw[0]) is int:
        return [convert(raw, list[Annotated[int, Meta(ge=0, le=MAX_INT)]], "prompt")]
    if len(raw) > MAX_PROMPTS:
        raise InvalidRequest(
            f"Invalid 'prompt': at most {MAX_PROMPTS} prompts can be sent at once, and these are {len(raw)}.",
            param="prompt",
            code="array_above_max_length",
        )
    return [_prompt(each, ("prompt", index)) for index, each in enumerate(raw)]


def _prompt(raw: Any, param: ParamPath) -> Prompt:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, list) and raw:
        return convert(raw, list[Annotated[int, Meta(ge=0, le=MAX_INT)]], param)
    raise wrong_type(param, "a string or token ids", raw)


class CompletionLogprobs(Wire, kw_only=True):
    """Parallel lists, one entry per token. Offsets are in characters of the choice's text."""

    text_offset: list[int] = []
    token_logprobs: list[float | None] = []
    tokens: list[str] = []
    top_logprobs: list[dict[str, float] | None] = []


class CompletionChoice(Value, frozen=True, kw_only=True):
    """The fields after `finish_reason` are vLLM's, and are omitted if not requested or unknown."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Literal["stop", "length", "content_filter"]
    stop_reason: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: list[dict[int, PromptLogprob] | None] | UnsetType = UNSET


class Completion(Value, frozen=True, kw_only=True):
    """The non-streaming answer."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage
    system_fingerprint: str | None = None
    timings: Timings | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET
    kv_transfer_params: JsonObject | UnsetType = UNSET


class CompletionChunkChoice(Value, frozen=True, kw_only=True):
    """A piece of one choice's text; the last one has the `finish_reason`."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length", "content_filter"] | None
    stop_reason: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionChunk(Value, frozen=True, kw_only=True):
    """One chunk of a streamed completion. After a failure, an object with `error` is sent instead."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: CompletionUsage | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET


# /tokenize and /detokenize, compatible with vLLM.


class TokenizeAnswer(Value, frozen=True, kw_only=True):
    """The answer of `/tokenize`."""

    count: int
    max_model_len: int | None
    tokens: list[int]
    token_strs: list[str] | None = None


class TokenizeOptions(Wire, kw_only=True):
    """The parameters specific to `/tokenize`: a `prompt`, or else the parameters of a chat request."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(Wire, kw_only=True):
    model: str | None = None
    tokens: list[Annotated[int, Meta(ge=0, le=MAX_INT)]]


class Detokenized(Value, frozen=True, kw_only=True):
    prompt: str
