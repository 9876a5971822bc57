"""How to sample for one request."""

from __future__ import annotations

from typing import Any

from gateway.errors import InvalidRequest
from gateway.protocols import Sampling
from gateway.served import ServedModel
from gateway.wire.sampling import SamplingParameters

_CHOSEN = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "seed", "min_tokens",
)  # fmt: skip


def sampling_of(
    request: SamplingParameters,
    model: ServedModel,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> Sampling:
    """The request's settings before the configured ones, before the model's recommended ones, before the engine's own."""
    defaults = model.config.sampling
    stop = request.stop
    chosen: dict[str, Any] = {}
    for name in _CHOSEN:
        sources = (request, defaults, model.info.sampling)
        values = (getattr(source, name, None) for source in sources)
        chosen[name] = next((value for value in values if value is not None), None)
    return Sampling(
        **chosen,
        max_tokens=max_tokens if max_tokens is not None else defaults.max_tokens,
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(request.stop_token_ids or ()),
        bad_words=tuple(request.bad_words or ()),
        ignore_eos=bool(request.ignore_eos),
        include_stop_str_in_output=bool(request.include_stop_str_in_output),
        logit_bias=_logit_bias(request),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def _logit_bias(request: SamplingParameters) -> dict[int, float] | None:
    if not request.logit_bias:
        return None
    try:
        return {int(token): bias for token, bias in request.logit_bias.items()}
    except ValueError:
        raise InvalidRequest(
            "logit_bias maps token ids, written as whole numbers, to a bias.", param="logit_bias"
        ) from None
