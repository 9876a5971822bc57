"""Parameters shared by Chat Completions and Completions: number of choices, streaming, and output format."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from gateway.wire.common import JsonObject, Tagged, Value
from gateway.wire.parameters import SharedParameters


class ChatStreamOptions(Value, frozen=True, kw_only=True):
    """`continuous_usage_stats` is vLLM's: current usage in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class TextResponse(Tagged, frozen=True, kw_only=True, tag="text"):
    pass


class JsonObjectResponse(Tagged, frozen=True, kw_only=True, tag="json_object"):
    """`schema` is an extension of llama-server: the object must be valid under it."""

    schema: JsonObject | None = None


class ResponseSchema(Value, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    schema: JsonObject | None = None
    strict: bool | None = None


class JsonSchemaResponse(Tagged, frozen=True, kw_only=True, tag="json_schema"):
    json_schema: ResponseSchema


class StructuralTagResponse(Tagged, frozen=True, kw_only=True, tag="structural_tag"):
    """xgrammar's structural tags, as vLLM and SGLang take them: with `structures` and `triggers`, or with `format`."""

    structures: list[JsonObject] | None = None
    triggers: list[str] | None = None
    format: JsonObject | None = None

    def tag(self) -> JsonObject:
        """The fields that are set."""
        fields = {"structures": self.structures, "triggers": self.triggers, "format": self.format}
        return {name: value for name, value in fields.items() if value is not None}


ResponseFormat: TypeAlias = (
    TextResponse | JsonObjectResponse | JsonSchemaResponse | StructuralTagResponse
)


class StructuredParameters(SharedParameters, kw_only=True, omit_defaults=True, dict=True):
    """Base of the requests whose answers have choices."""

    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    user: str | None = None
    response_format: ResponseFormat | None = None

    @property
    def structures(self) -> bool:
        return super().structures or isinstance(self.response_format, StructuralTagResponse)
