"""The `text` and `reasoning` settings, which requests send and responses echo."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.wire.common import JsonObject, ReasoningEffort, Tagged, Value

FormatName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=r"\A[a-zA-Z0-9_-]+\Z")
]
"""The characters and the length that OpenAI allows. The name is inserted into prompts."""


class PlainText(Tagged, frozen=True, kw_only=True, tag="text"):
    """No required format."""

    @property
    def type(self) -> Literal["text"]:
        return "text"


class JsonObjectFormat(Tagged, frozen=True, kw_only=True, tag="json_object"):
    """Any JSON object."""

    @property
    def type(self) -> Literal["json_object"]:
        return "json_object"


class JsonSchemaFormat(Tagged, frozen=True, kw_only=True, tag="json_schema"):
    """JSON that is valid under a schema."""

    name: FormatName
    description: str | None = None
    schema: JsonObject
    strict: bool = False

    @property
    def type(self) -> Literal["json_schema"]:
        return "json_schema"


TextFormat: TypeAlias = PlainText | JsonSchemaFormat | JsonObjectFormat


class TextConfig(Value, frozen=True, kw_only=True):
    """`text`: the required format of the final text. Never null in a response."""

    format: TextFormat = msgspec.field(default_factory=PlainText)
    verbosity: Literal["low", "medium", "high"] | UnsetType = UNSET


class ReasoningOptions(Value, frozen=True, kw_only=True):
    """`reasoning`. `effort` and `summary` are always echoed; null if not set."""

    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | UnsetType = UNSET
    context: Literal["auto", "current_turn", "all_turns"] | UnsetType = UNSET
    mode: str | UnsetType = UNSET

    @property
    def requested_summary(self) -> Literal["auto", "concise", "detailed"] | None:
        """The requested summary, by the setting's current or older name."""
        return self.summary or self.generate_summary or None
