"""Usage of requests: reported to the hook `gateway_usage`, and counted per principal, model and period."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.plugins.protocols.principals import Principal
from gateway.wire.response import ResponseStatus

UsageWidth: TypeAlias = Literal["1m", "1h", "1d"]
"""The periods in which usage is counted: minutes, hours and days."""
WIDTH_SECONDS: Final[dict[UsageWidth, int]] = {"1m": 60, "1h": 3600, "1d": 86_400}
"""The length of each period in seconds."""
BUCKETS_KEPT: Final[dict[UsageWidth, int]] = {"1m": 2880, "1h": 336, "1d": 400}
"""Minimum number of periods of each length that are kept: minutes of two days, hours of two weeks, 400 days."""


class AnswerUsage(Struct, frozen=True, kw_only=True):
    """The usage of one answer of a model. If a tool uses a model, as file search does, that is a separate answer."""

    principal: Principal | None
    """None in anonymous mode, and for work that belongs to no request."""
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
    """Number of input tokens that the engine had cached."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """Number of output tokens that are reasoning."""


class UsageCount(Struct, frozen=True, kw_only=True):
    """The usage of a model by a principal in one minute, hour or day."""

    width: UsageWidth = "1d"
    bucket: int
    """The number of the period: minutes, hours or days since 1970, in UTC."""
    api: str
    """The short name of the API, like `AnswerUsage.api`."""
    principal: str | None
    """The principal's name; None for anonymous requests."""
    model: str
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


@runtime_checkable
class UsageCounters(Protocol):
    """Optional part of a store: counts the usage of principals. Counts are kept as long as `BUCKETS_KEPT` says, if the
    store keeps its data that long."""

    async def add_usage(self, batch: str, counts: Sequence[UsageCount]) -> None:
        """Add `counts`, of any widths. `batch` is a unique id: a batch that is sent again within an hour is not added
        again."""
        ...

    async def read_usage(
        self, first: int, last: int, *, width: UsageWidth = "1d"
    ) -> Sequence[UsageCount]:
        """Return the sums of the periods of one width from `first` to `last`, both included, in any order: one sum for
        each bucket, API, principal and model."""
        ...
