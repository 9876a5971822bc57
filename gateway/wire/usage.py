"""Usage and costs of an organization, in the form of OpenAI's administration API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gateway.wire.common import Value


class CompletionsUsage(Value, frozen=True, kw_only=True):
    """Usage of all generating APIs. Fields that the request does not group by are null."""

    object: Literal["organization.usage.completions.result"] = (
        "organization.usage.completions.result"
    )
    input_tokens: int
    output_tokens: int
    input_cached_tokens: int
    input_audio_tokens: int = 0
    output_audio_tokens: int = 0
    output_reasoning_tokens: int
    """Not in OpenAI's API."""
    num_model_requests: int
    project_id: None = None
    user_id: None = None
    api_key_id: str | None = None
    """The name of the API key."""
    model: str | None = None
    batch: None = None
    service_tier: None = None


class EmbeddingsUsage(Value, frozen=True, kw_only=True):
    """Usage of embeddings."""

    object: Literal["organization.usage.embeddings.result"] = "organization.usage.embeddings.result"
    input_tokens: int
    num_model_requests: int
    project_id: None = None
    user_id: None = None
    api_key_id: str | None = None
    model: str | None = None


class Amount(Value, frozen=True, kw_only=True):
    """An amount of money."""

    value: float
    currency: str


class Costs(Value, frozen=True, kw_only=True):
    """The costs of the usage, at the current prices."""

    object: Literal["organization.costs.result"] = "organization.costs.result"
    amount: Amount
    line_item: str | None = None
    """A model and a kind of tokens: `qwen, input_tokens`."""
    project_id: None = None
    api_key_id: str | None = None


class Bucket(Value, frozen=True, kw_only=True):
    """One day."""

    object: Literal["bucket"] = "bucket"
    start_time: int
    end_time: int
    results: Sequence[Any]


class BucketPage(Value, frozen=True, kw_only=True):
    """Days, oldest first."""

    object: Literal["page"] = "page"
    data: Sequence[Bucket]
    has_more: bool
    next_page: str | None
