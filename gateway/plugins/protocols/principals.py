"""Principals: the senders of requests, what they may use, and the counters of their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Meta, Struct

_Count: TypeAlias = Annotated[int, Meta(ge=1)]


class PrincipalLimits(Struct, frozen=True, kw_only=True):
    """The limits of one principal. None: no limit."""

    requests_per_minute: _Count | None = None
    tokens_per_minute: _Count | None = None
    tokens_per_day: _Count | None = None
    max_concurrent_requests: _Count | None = None

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return self != _UNLIMITED


_UNLIMITED = PrincipalLimits()


class Principal(Struct, frozen=True, kw_only=True):
    """The sender of a request, identified by an API key or by an authenticator."""

    name: str
    """The owner of stored data. Counters and limits belong to the name."""
    models: Sequence[str] | None = None
    """Names of the models that the principal may use; `*` stands for any characters. None: all."""
    tools: Sequence[str] | None = None
    """Names of the tool servers that the principal may use, as in `[tools.<name>]`. None: all."""
    limits: PrincipalLimits = PrincipalLimits()
    priority: int = 0
    """Waiting requests of the principals with the lowest number are served first, as in vLLM."""
    weight: Annotated[float, Meta(gt=0)] = 1.0
    """The principal's share among waiting principals of the same priority."""
    admin: bool = False
    """Whether the principal may read usage and change what the server serves."""
    key: str | None = None
    """Identifies the API key among several keys of the same name: a hash of the key's hash. None if an authenticator
    identified the principal."""


LimitName: TypeAlias = Literal["requests", "tokens", "day", "concurrent"]
"""`requests` and `tokens` are per minute, `day` is tokens per day."""


class LimitState(Struct, frozen=True, kw_only=True):
    """The result of `LimitCounters.admit_request`."""

    refused: LimitName | None = None
    """The limit that refuses the request, if any."""
    retry_after: float = 0.0
    """Seconds after which a refused request may be admitted."""
    requests: float = 0.0
    """Requests counted against `requests_per_minute`, including this one. They decay at the limit's rate."""
    tokens: float = 0.0
    """Tokens counted against `tokens_per_minute`, in the same way."""
    day: int = 0
    """The day (days since 1970 in UTC) that the tokens were counted for."""


class SettledRequest(Struct, frozen=True, kw_only=True):
    """The end of an admitted request."""

    principal: str
    request_id: str
    limits: PrincipalLimits
    reserved: int
    """Number of tokens that were counted at admission."""
    used: int
    """Number of tokens that the request has used."""
    day: int
    """`LimitState.day` of the request's admission."""


@runtime_checkable
class LimitCounters(Protocol):
    """Optional part of a store: counts requests and tokens of principals against their limits.

    Per-minute limits are token buckets: a principal may use its whole limit in a burst, and regains it at a constant
    rate, all of it within a minute. `tokens_per_day` starts from zero at midnight, UTC. A principal's counters are
    shared by all gateways that use the store. Times are those of the store's clock.
    """

    async def admit_request(
        self,
        principal: str,
        request_id: str,
        limits: PrincipalLimits,
        *,
        tokens: int,
        seconds: float,
    ) -> LimitState:
        """Atomically count a request and `tokens` tokens, unless a limit is exceeded; then nothing is counted.

        Takes one round trip. The request counts as running until it is settled, or is not renewed for `seconds`.
        Admitting a request twice counts it once. A token limit refuses a request with more tokens than the limit has
        left. `tokens` must be from 1 to the smallest token limit.
        """
        ...

    async def settle_requests(self, ended: Sequence[SettledRequest]) -> None:
        """Replace the tokens counted at admission by those used, and end these requests. A request is settled once."""
        ...

    async def renew_requests(self, running: Sequence[tuple[str, str]], *, seconds: float) -> None:
        """Keep requests, given as (principal, request id), for `seconds` from now. Settled requests stay settled."""
        ...
