"""Parameters shared by Chat Completions and Completions: number of choices, streaming, and output format."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from gateway.wire.common import JsonObject, Tagged, Value
from gateway.wire.sampling import Natural, SamplingParameters


class StreamOptions(Value, frozen=True, kw_only=True):
    """`continuous_usage_stats` is vLLM's: current usage in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class TextResponse(Tagged, frozen=True, kw_only=True, tag="text"):
    pass


class JsonObjectResponse(Tagged, frozen=True, kw_only=True, tag="json_object"):
    pass


class ResponseSchema(Value, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    schema: JsonObject | None = None
    strict: bool | None = None


class JsonSchemaResponse(Tagged, frozen=True, kw_only=True, tag="json_schema"):
    json_schema: ResponseSchema


ResponseFormat: TypeAlias = TextResponse | JsonObjectResponse | JsonSchemaResponse


class StructuredOutputs(Value, frozen=True, kw_only=True):
    """The required form of the final text; exactly one field is set. This is vLLM's parameter; its older `guided_*`
    parameters are equivalent."""

    json: str | JsonObject | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None


class StructuredParameters(SamplingParameters, kw_only=True, omit_defaults=True, dict=True):
    """Base of the requests that are answered with choices."""

    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    response_format: ResponseFormat | None = None

    structured_outputs: StructuredOutputs | None = None
    guided_json: str | JsonObject | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_decoding_backend: str | None = None
    guided_whitespace_pattern: str | None = None
    request_id: str | None = None

    # Defined so that they are rejected if they would change the answer.
    use_beam_search: bool | None = None
    best_of: Natural | None = None
    length_penalty: float | None = None
    allowed_token_ids: list[int] | None = None
    truncate_prompt_tokens: int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    logits_processors: list[Any] | None = None
    kv_transfer_params: JsonObject | None = None
    vllm_xargs: JsonObject | None = None
