"""Counters of limits; see `gateway.sdk.LimitCounters`."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import LimitState, PrincipalLimits, SettledRequest
from gateway.sdk.stores import DAY_SECONDS, counted_at, decayed, refusal
from gateway_sql.statements import Operation, Rows, Statement, key


def admit(
    principal: str,
    request_id: str,
    limits: PrincipalLimits,
    tokens: int,
    seconds: float,
    now: float,
) -> Operation[LimitState]:
    """Count a request, unless a limit is exceeded. A request that was counted before is not counted again."""
    who, what = key(principal), key(request_id)
    yield Statement(
        "INSERT INTO limits (principal, requests, requests_at, tokens, tokens_at, day, day_tokens, used) "
        "VALUES ($1, 0, 0, 0, 0, 0, 0, $2) ON CONFLICT (principal) DO NOTHING",
        (who, now),
    )
    rows = yield _locked(who)
    spent_requests, requests_at, spent_tokens, tokens_at, counted_day, day_tokens = rows[0]
    known = yield Statement(
        "SELECT requests, tokens, day FROM limit_requests WHERE principal = $1 AND request = $2",
        (who, what),
    )
    if known:
        requests, spent, day = known[0]
        return LimitState(requests=requests, tokens=spent, day=day)
    day = int(now // DAY_SECONDS)
    if counted_day != day:
        day_tokens = 0
    requests = decayed(spent_requests, requests_at, limits.requests_per_minute, now)
    spent = decayed(spent_tokens, tokens_at, limits.tokens_per_minute, now)
    running: Rows = ((0,),)
    if limits.max_concurrent_requests is not None:
        yield Statement(
            "DELETE FROM limit_requests WHERE principal = $1 AND until <= $2", (who, now)
        )
        running = yield Statement(
            "SELECT count(*) FROM limit_requests WHERE principal = $1", (who,)
        )
    refused = refusal(
        limits,
        requests=requests,
        spent=spent,
        day_tokens=day_tokens,
        running=running[0][0],
        tokens=tokens,
        now=now,
    )
    if refused is None:
        requests, spent, day_tokens = requests + 1, spent + tokens, day_tokens + tokens
        yield Statement(
            "INSERT INTO limit_requests (principal, request, until, requests, tokens, day) "
            "VALUES ($1, $2, $3, $4, $5, $6)",
            (who, what, now + seconds, requests, spent, day),
        )
    yield Statement(
        "UPDATE limits SET requests = $2, requests_at = $3, tokens = $4, tokens_at = $5, day = $6, day_tokens = $7, "
        "used = $8 WHERE principal = $1",
        (
            who,
            requests,
            counted_at(requests_at, now),
            spent,
            counted_at(tokens_at, now),
            day,
            day_tokens,
            now,
        ),
    )
    return LimitState(requests=requests, tokens=spent, day=day) if refused is None else refused


def settle(ended: Sequence[SettledRequest], now: float) -> Operation[None]:
    """Replace the tokens counted at admission by those used."""
    for each in sorted(ended, key=lambda each: key(each.principal)):
        who = key(each.principal)
        rows = yield _locked(who)
        if not rows:
            continue
        _, _, spent, at, counted_day, day_tokens = rows[0]
        gone = yield Statement(
            "DELETE FROM limit_requests WHERE principal = $1 AND request = $2 RETURNING day",
            (who, key(each.request_id)),
        )
        if not gone:
            continue
        change = each.used - each.reserved
        if each.limits.tokens_per_minute is not None:
            spent = max(0.0, decayed(spent, at, each.limits.tokens_per_minute, now) + change)
            at = counted_at(at, now)
        if counted_day == each.day:
            day_tokens = max(0, day_tokens + change)
        yield Statement(
            "UPDATE limits SET tokens = $2, tokens_at = $3, day_tokens = $4, used = $5 WHERE principal = $1",
            (who, spent, at, day_tokens, now),
        )


def renew(running: Sequence[tuple[str, str]], seconds: float, now: float) -> Operation[None]:
    """Extend the time for which running requests count, to `seconds` from now."""
    yield Statement(
        "UPDATE limit_requests SET until = $3 WHERE principal = $1 AND request = $2",
        sorted(
            (key(principal), key(request_id), now + seconds) for principal, request_id in running
        ),
        each=True,
    )


def forget(now: float) -> Operation[None]:
    """Delete rows that have no effect any more: requests of processes that died, and counters that were not used for
    two days."""
    yield Statement("DELETE FROM limit_requests WHERE until < $1", (now - DAY_SECONDS,))
    yield Statement("DELETE FROM limits WHERE used < $1", (now - 2 * DAY_SECONDS,))


def _locked(principal: str) -> Statement:
    return Statement(
        "SELECT requests, requests_at, tokens, tokens_at, day, day_tokens FROM limits WHERE principal = $1 FOR UPDATE",
        (principal,),
    )
