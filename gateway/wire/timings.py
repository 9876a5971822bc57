"""How long an answer took, as llama-server (`timings`) and vLLM (`metrics`) tell it. Present if `timings_per_token` asks for it."""

from __future__ import annotations

from gateway.wire.common import Value


class Timings(Value, frozen=True, kw_only=True):
    """The names are llama-server's. Times are summed over all generations of the answer; None where there was nothing to measure."""

    cache_n: int
    """Tokens of prompts that were cached."""
    prompt_n: int
    """Tokens of prompts that were not."""
    prompt_ms: float | None
    """Time from the beginning of a generation to its first output."""
    prompt_per_token_ms: float | None
    prompt_per_second: float | None
    predicted_n: int
    """Output tokens."""
    predicted_ms: float | None
    """Time from the first output to the last one."""
    predicted_per_token_ms: float | None
    """Mean time per output token after the first."""
    predicted_per_second: float | None


class RequestMetrics(Value, frozen=True, kw_only=True):
    """The names are vLLM's."""

    time_to_first_token_ms: float | None
    """From leaving the queue."""
    generation_time_ms: float | None
    """From the first output to the last one."""
    queue_time_ms: float | None
    mean_itl_ms: float | None
    """Mean time per output token after the first."""
    tokens_per_second: float | None
