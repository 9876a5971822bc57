"""What requests have used: for the hook `gateway_usage`, and counted per principal, model and day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.protocols.principals import Principal
from gateway.wire.response import ResponseStatus

UsageWidth: TypeAlias = Literal["1m", "1h", "1d"]
"""The times that usage is counted by: minutes, hours, days."""
WIDTH_SECONDS: Final[dict[UsageWidth, int]] = {"1m": 60, "1h": 3600, "1d": 86_400}
"""The length of each."""
BUCKETS_KEPT: Final[dict[UsageWidth, int]] = {"1m": 2880, "1h": 336, "1d": 400}
"""How many of each are kept at least: minutes of two days, hours of two weeks."""


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
    """What a principal has used of a model in one minute, hour or day."""

    width: UsageWidth = "1d"
    bucket: int
    """Which one: the number of such minutes, hours or days since 1970, in UTC."""
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
    """Optional part of a store: counts what principals use. Kept as `BUCKETS_KEPT` says, as long as the store keeps anything."""

    async def add_usage(self, batch: str, counts: Sequence[UsageCount]) -> None:
        """Add `counts`, of any widths. A batch, which is named by a unique id, is added once, also if it is sent again within an hour."""
        ...

    async def read_usage(
        self, first: int, last: int, *, width: UsageWidth = "1d"
    ) -> Sequence[UsageCount]:
        """The sums of a width from the bucket `first` to `last`, both included, in any order: one for each bucket, API,
        principal and model."""
        ...
