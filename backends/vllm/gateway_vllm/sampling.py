"""Converts `Sampling` to keyword arguments of vLLM's `SamplingParams`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gateway.sdk import InvalidRequest, Sampling

_OPTIONAL = (
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "logprobs",
    "prompt_logprobs",
)
_INT64 = 2**63
# vLLM sends these to its engine process as 64-bit integers, so larger values must be rejected.
_INTEGERS = ("max_tokens", "min_tokens", "top_k", "seed", "logprobs", "prompt_logprobs")


def sampling_arguments(
    sampling: Sampling, *, defaults: Mapping[str, Any], room: int
) -> dict[str, Any]:
    """Keyword arguments for `SamplingParams`; values equal to vLLM's defaults are omitted.

    `defaults` are the model's own, from its generation_config.json. `room` is the remaining context in tokens. Raises
    `InvalidRequest` for values that vLLM does not check.
    """
    for name in _INTEGERS:
        value = getattr(sampling, name)
        if value is not None and not -_INT64 <= value < _INT64:
            raise InvalidRequest(f"{name} must be a 64-bit integer, got {value}.", param=name)
    arguments: dict[str, Any] = dict(defaults)
    for name in _OPTIONAL:
        value = getattr(sampling, name)
        if value is not None:
            arguments[name] = value
    wanted = sampling.max_tokens
    if wanted is None:
        wanted = defaults.get("max_tokens")
    arguments["max_tokens"] = room if wanted is None else min(wanted, room)
    if sampling.stop:
        arguments["stop"] = list(sampling.stop)
    if sampling.stop_token_ids:
        arguments["stop_token_ids"] = list(sampling.stop_token_ids)
    if sampling.bad_words:
        arguments["bad_words"] = list(sampling.bad_words)
    if sampling.allowed_token_ids:
        arguments["allowed_token_ids"] = list(sampling.allowed_token_ids)
    if sampling.logit_bias:
        for bias in sampling.logit_bias.values():
            if not math.isfinite(bias) or abs(bias) > 100:
                raise InvalidRequest(
                    f"logit_bias values must be between -100 and 100, got {bias}.",
                    param="logit_bias",
                )
        arguments["logit_bias"] = dict(sampling.logit_bias)
    if sampling.ignore_eos:
        arguments["ignore_eos"] = True
    if sampling.include_stop_str_in_output:
        arguments["include_stop_str_in_output"] = True
    if not sampling.skip_special_tokens:
        arguments["skip_special_tokens"] = False
        # Formats match special tokens literally; vLLM inserts spaces between them only for readability.
        arguments["spaces_between_special_tokens"] = False
    if sampling.logprobs is not None or sampling.prompt_logprobs is not None:
        # Flat lists avoid a dictionary of objects per token.
        arguments["flat_logprobs"] = True
    return arguments
