"""What requests have used: for the hook `gateway_usage`, and counted per principal, model and day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from gateway.protocols.principals import Principal
from gateway.wire.response import ResponseStatus


class AnswerUsage(Struct, frozen=True, kw_only=True):
    """What one answer of a model has used. A tool that uses a model, such as file search, has answers of its own."""

    principal: Principal | None
    """None in anonymous mode, and for what no request has asked for."""
    request_id: str
    """The request's `x-request-id`; "" outside of requests."""
    response_id: str
    """The id of the answer; "" if it has none."""
    api: str
    """The short name of the API: `responses`, `chat`, `completions`, `embeddings`, `rerank`, `score`, or the name of a plugin's API."""
    model: str
    status: ResponseStatus
    seconds: float
    """Time from the request's arrival to its end."""
    input_tokens: int = 0
    cached_tokens: int = 0
    """Those of the input tokens that the engine had cached."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """Those of the output tokens that are reasoning."""


class UsageCount(Struct, frozen=True, kw_only=True):
    """What a principal has used of a model on one day."""

    day: int
    """Days since 1970, in UTC."""
    api: str
    """As `AnswerUsage.api`."""
    principal: str | None
    """Its name; None for anonymous requests."""
    model: str
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


@runtime_checkable
class UsageCounters(Protocol):
    """Optional part of a store: counts what principals use. Kept for at least 400 days, as long as the store keeps anything."""

    async def add_usage(self, batch: str, counts: Sequence[UsageCount]) -> None:
        """Add `counts`. A batch, which is named by a unique id, is added once, also if it is sent again within an hour."""
        ...

    async def read_usage(self, first_day: int, last_day: int) -> Sequence[UsageCount]:
        """The sums from `first_day` to `last_day`, both included, in any order: one for each day, API, principal and model."""
        ...
