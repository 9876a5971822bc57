"""Converts `Sampling` to keyword arguments of TensorRT-LLM's `SamplingParams`."""

from __future__ import annotations

import math
import random
from typing import Any

from gateway.sdk import InvalidRequest, Sampling

_RANGES: dict[str, tuple[float, float]] = {
    # TensorRT-LLM accepts a top_p of 0 but fails on it.
    "top_p": (math.ulp(0.0), 1.0),
    "min_p": (0.0, 1.0),
    "temperature": (0.0, math.inf),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (math.ulp(0.0), math.inf),
}
_UINT64 = 2**64
_INT32 = 2**31


def sampling_arguments(
    sampling: Sampling, *, room: int, ends: tuple[int, ...], vocabulary: int
) -> dict[str, Any]:
    """Keyword arguments for `SamplingParams`. Only tokens are requested; the gateway makes text and matches stop
    strings.

    `room` is the remaining context in tokens, `ends` are the ids that end an output, `vocabulary` is the number of
    token ids. Raises `InvalidRequest`, naming the parameter, for what TensorRT-LLM does not support or does not check.
    """
    arguments: dict[str, Any] = {
        "max_tokens": _length(sampling, room),
        "detokenize": False,
        # Tokens and log probabilities are complete, including the token that ended the output.
        "include_stop_str_in_output": True,
        # TensorRT-LLM defaults to greedy decoding; the OpenAI API samples.
        "temperature": 1.0,
        # TensorRT-LLM defaults to the same seed for every request.
        "seed": random.getrandbits(63) if sampling.seed is None else sampling.seed % _UINT64,
    }
    for name, (least, most) in _RANGES.items():
        value = getattr(sampling, name)
        if value is None:
            continue
        if not least <= value <= most or not math.isfinite(value):
            raise InvalidRequest(f"{name} is out of range: {value}.", param=name)
        arguments[name] = value
    if sampling.top_k is not None:
        if not -1 <= sampling.top_k < _INT32:
            raise InvalidRequest(
                f"top_k must be -1 or 0 (all tokens), or larger, got {sampling.top_k}.",
                param="top_k",
            )
        arguments["top_k"] = max(sampling.top_k, 0)
    if sampling.min_tokens:
        arguments["min_tokens"] = sampling.min_tokens
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(sampling, name)
        if value is not None:
            if value < 0:
                raise InvalidRequest(f"{name} must not be negative, got {value}.", param=name)
            arguments[name] = value
    _ending(arguments, sampling, ends, vocabulary)
    if sampling.bad_words:
        arguments["bad"] = list(sampling.bad_words)
    if sampling.logit_bias:
        arguments["embedding_bias"] = _bias(sampling.logit_bias, vocabulary)
    return arguments


def _length(sampling: Sampling, room: int) -> int:
    wanted = sampling.max_tokens
    if wanted is not None and wanted < 1:
        raise InvalidRequest(f"max_tokens must be at least 1, got {wanted}.", param="max_tokens")
    length = room if wanted is None else min(wanted, room)
    least = sampling.min_tokens or 0
    if not 0 <= least <= length:
        raise InvalidRequest(
            f"min_tokens must be between 0 and the {length} tokens that there may be, got {least}.",
            param="min_tokens",
        )
    return length


def _ending(
    arguments: dict[str, Any], sampling: Sampling, ends: tuple[int, ...], vocabulary: int
) -> None:
    for token_id in sampling.stop_token_ids:
        if not 0 <= token_id < vocabulary:
            raise InvalidRequest(
                f"stop_token_ids: {token_id} is outside the vocabulary of {vocabulary} tokens.",
                param="stop_token_ids",
            )
    stops = list(dict.fromkeys(sampling.stop_token_ids))
    if not sampling.ignore_eos:
        # The first is TensorRT-LLM's end_id. Which others it knows depends on its version.
        stops += [token_id for token_id in ends[1:] if token_id not in stops]
    else:
        if sampling.bad_words:
            raise InvalidRequest(
                "bad_words cannot be combined with ignore_eos by this engine.", param="bad_words"
            )
        arguments["ignore_eos"] = True
        # With an explicit end_id, TensorRT-LLM does not add the model's other end tokens.
        arguments["end_id"] = arguments["pad_id"] = ends[0] if ends else 0
    if stops:
        arguments["stop_token_ids"] = stops


def _bias(biases: dict[int, float], vocabulary: int) -> list[float]:
    """A dense list with one bias per token."""
    made = [0.0] * vocabulary
    for token_id, bias in biases.items():
        if not math.isfinite(bias) or abs(bias) > 100:
            raise InvalidRequest(
                f"logit_bias values must be between -100 and 100, got {bias}.", param="logit_bias"
            )
        if not 0 <= token_id < vocabulary:
            raise InvalidRequest(
                f"logit_bias: {token_id} is outside the vocabulary of {vocabulary} tokens.",
                param="logit_bias",
            )
        made[token_id] = bias
    return made


LAST_PRIORITY = 100


def priority(value: int) -> float:
    """Convert a gateway priority (lower runs earlier, default 0) to TensorRT-LLM's (0 to 1, higher runs earlier)."""
    if not -LAST_PRIORITY <= value <= LAST_PRIORITY:
        raise InvalidRequest("priority must be between -100 and 100.", param="priority")
    return 0.5 - value / 200
