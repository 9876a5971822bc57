"""Names and attributes of spans, by OpenTelemetry's semantic conventions for generative AI (1.41)."""

from __future__ import annotations

from gateway.generation.usage import PromptCount
from gateway.models.served_model import ServedModel
from gateway.observe.run_stats import RunStats
from gateway.plugins.protocols import Attributes, FinishReason, Sampling


def span_name(api: str, model: ServedModel) -> str:
    """Return the name of the span of a generation, of embeddings or of scores."""
    return f"{_operation(api)} {model.name}"


def generation_attributes(
    stats: RunStats,
    model: ServedModel,
    sampling: Sampling,
    count: PromptCount,
    generated: int,
    finish: FinishReason | None,
) -> Attributes:
    """Return the attributes of the span of a generation that has ended with `generated` tokens. They contain no
    texts."""
    attributes: dict[str, str | int | float | bool | list[str]] = {
        "gen_ai.operation.name": _operation(stats.api),
        "gen_ai.provider.name": model.info.engine,
        "gen_ai.request.model": model.name,
        "gen_ai.response.model": model.name,
        "gen_ai.usage.input_tokens": count.prompt,
        "gen_ai.usage.output_tokens": generated,
    }
    if count.cached:
        attributes["gen_ai.usage.cache_read.input_tokens"] = count.cached
    if stats.response_id:
        attributes["gen_ai.response.id"] = stats.response_id
    for name in ("max_tokens", "temperature", "top_p", "seed"):
        if (value := getattr(sampling, name)) is not None:
            attributes[f"gen_ai.request.{name}"] = value
    if finish is not None:
        attributes["gen_ai.response.finish_reasons"] = [finish]
    return attributes


def pooled_attributes(stats: RunStats, model: ServedModel, tokens: int | None) -> Attributes:
    """Return the attributes of the span of embeddings or scores. `tokens` is their number of tokens, or None if they
    failed."""
    attributes: dict[str, str | int | float | bool | list[str]] = {
        "gen_ai.operation.name": _operation(stats.api),
        "gen_ai.provider.name": model.info.engine,
        "gen_ai.request.model": model.name,
        "gen_ai.response.model": model.name,
    }
    if tokens is not None:
        attributes["gen_ai.usage.input_tokens"] = tokens
    return attributes


def _operation(api: str) -> str:
    """Return the operation's name in the conventions, which have none for reranking and scoring."""
    match api:
        case "completions":
            return "text_completion"
        case "embeddings" | "rerank" | "score":
            return api
        case _:
            return "chat"
