"""Times of an answer, for requests that ask for them with `timings_per_token`."""

from __future__ import annotations

from typing import NamedTuple

from gateway.observe.run_stats import RunStats
from gateway.wire.response import Usage
from gateway.wire.timings import RequestMetrics, Timings


class AnswerTimes(NamedTuple):
    """The times of one answer, in the forms of llama.cpp (`timings`) and vLLM (`metrics`)."""

    timings: Timings
    metrics: RequestMetrics


def answer_times(stats: RunStats, usage: Usage) -> AnswerTimes:
    """Return the times of an answer whose generations have ended."""
    cached = usage.input_tokens_details.cached_tokens
    fresh = usage.input_tokens - cached
    prompt = stats.prompt_seconds if stats.first_token else None
    decode = stats.decode_seconds if stats.decode_tokens else None
    per_token = _ms(stats.seconds_per_token)
    per_second = _ratio(stats.decode_tokens, decode)
    first = stats.first_token - stats.admitted if stats.first_token and stats.admitted else None
    return AnswerTimes(
        Timings(
            cache_n=cached,
            prompt_n=fresh,
            prompt_ms=_ms(prompt),
            prompt_per_token_ms=None if prompt is None or fresh <= 0 else _ms(prompt / fresh),
            prompt_per_second=_ratio(fresh, prompt),
            predicted_n=usage.output_tokens,
            predicted_ms=_ms(decode),
            predicted_per_token_ms=per_token,
            predicted_per_second=per_second,
        ),
        RequestMetrics(
            time_to_first_token_ms=_ms(first),
            generation_time_ms=_ms(decode),
            queue_time_ms=_ms(stats.queue_seconds),
            mean_itl_ms=per_token,
            tokens_per_second=per_second,
        ),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _ratio(tokens: int, seconds: float | None) -> float | None:
    return round(tokens / seconds, 3) if seconds and tokens > 0 else None
