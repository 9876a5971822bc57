"""Durations of an answer, in the forms of llama-server (`timings`) and vLLM (`metrics`). Present if the request sets
`timings_per_token`."""

from __future__ import annotations

from gateway.wire.common import Value


class Timings(Value, frozen=True, kw_only=True):
    """The names are llama-server's. Times are summed over all generations of the answer; None if there was nothing to
    measure."""

    cache_n: int
    """Number of prompt tokens that were cached."""
    prompt_n: int
    """Number of prompt tokens that were not cached."""
    prompt_ms: float | None
    """Time from the beginning of a generation to its first output."""
    prompt_per_token_ms: float | None
    prompt_per_second: float | None
    predicted_n: int
    """Number of output tokens."""
    predicted_ms: float | None
    """Time from the first output to the last one."""
    predicted_per_token_ms: float | None
    """Mean time per output token after the first."""
    predicted_per_second: float | None


class RequestMetrics(Value, frozen=True, kw_only=True):
    """The names are vLLM's."""

    time_to_first_token_ms: float | None
    """Measured from the end of the time in the queue."""
    generation_time_ms: float | None
    """From the first output to the last one."""
    queue_time_ms: float | None
    mean_itl_ms: float | None
    """Mean time per output token after the first."""
    tokens_per_second: float | None
