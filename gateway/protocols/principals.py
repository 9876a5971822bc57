"""Principals: who sends a request, what they may use, and the counters of their limits."""

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
    """Who sends a request, as an API key or an authenticator says."""

    name: str
    """The owner of what is stored. Counters and limits belong to the name."""
    models: Sequence[str] | None = None
    """Names of the models that it may use; `*` stands for any characters. None: all."""
    tools: Sequence[str] | None = None
    """Names of the tool servers that it may use, as in `[tools.<name>]`. None: all."""
    limits: PrincipalLimits = PrincipalLimits()
    priority: int = 0
    """Whose waiting requests are served first: those of the lowest priority, as in vLLM."""
    weight: Annotated[float, Meta(gt=0)] = 1.0
    """Its share among waiting principals of the same priority."""
    admin: bool = False
    """Whether it may read usage and change what the server serves."""
    key: str | None = None
    """Identifies its API key among several of the same name: a hash of the key's hash. None if an authenticator found the principal."""


LimitName: TypeAlias = Literal["requests", "tokens", "day", "concurrent"]
"""`requests` and `tokens` are per minute, `day` is tokens per day."""


class LimitState(Struct, frozen=True, kw_only=True):
    """What `LimitCounters.admit_request` has found."""

    refused: LimitName | None = None
    """The limit that refuses the request, if any."""
    retry_after: float = 0.0
    """Seconds after which a refused request may be admitted."""
    requests: float = 0.0
    """Requests counted against `requests_per_minute`, this one included. They decay at the limit's rate."""
    tokens: float = 0.0
    """The same for `tokens_per_minute`."""
    day: int = 0
    """The day (days since 1970 in UTC) that the tokens were counted for."""


class SettledRequest(Struct, frozen=True, kw_only=True):
    """The end of an admitted request."""

    principal: str
    request_id: str
    limits: PrincipalLimits
    reserved: int
    """The tokens that were counted when it was admitted."""
    used: int
    """The tokens that it has used."""
    day: int
    """`LimitState.day` of its admission."""


@runtime_checkable
class LimitCounters(Protocol):
    """Optional part of a store: counts requests and tokens of principals against their limits.

    Per-minute limits are token buckets: a principal may use its whole limit at once, and regains it at a constant rate,
    all of it within a minute. `tokens_per_day` begins anew at midnight, UTC. A principal's counters are shared by all
    gateways that use the store. Times are the store's own.
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

        One round trip. The request runs until it is settled, or not renewed for `seconds`. Admitting it twice counts it once. A
        limit on tokens refuses what exceeds what is left of it. `tokens` must be from 1 to the smallest limit on tokens.
        """
        ...

    async def settle_requests(self, ended: Sequence[SettledRequest]) -> None:
        """Replace the tokens counted at admission by those used, and end these requests. A request is settled once."""
        ...

    async def renew_requests(self, running: Sequence[tuple[str, str]], *, seconds: float) -> None:
        """Keep requests, given as (principal, request id), for `seconds` from now. Settled ones stay settled."""
        ...
