"""Sampling settings of one request."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from gateway.base.errors import InvalidRequest
from gateway.models.served_model import SAMPLED, ServedModel
from gateway.plugins.protocols import Sampling
from gateway.wire.parameters import SharedParameters

_sent = attrgetter(
    *SAMPLED, "stop", "stop_token_ids", "bad_words", "ignore_eos", "include_stop_str_in_output", "logit_bias",
    "allowed_token_ids",
)  # fmt: skip


def sampling_of(
    request: SharedParameters,
    model: ServedModel,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> Sampling:
    """Merge sampling settings. Precedence: the request, the configuration, the model's recommendation. Raises
    `InvalidRequest` for invalid values."""
    defaults = model.sampling
    values = _sent(request)
    own: dict[str, Any] = {}
    if values.count(None) < len(values):
        own = {
            name: value for name, value in zip(SAMPLED, values, strict=False) if value is not None
        }
        own |= {
            "stop": _stop(request.stop),
            "stop_token_ids": tuple(request.stop_token_ids or ()),
            "bad_words": tuple(request.bad_words or ()),
            "ignore_eos": bool(request.ignore_eos),
            "include_stop_str_in_output": bool(request.include_stop_str_in_output),
            "logit_bias": _logit_bias(request),
            "allowed_token_ids": tuple(request.allowed_token_ids or ()),
        }
    return msgspec.structs.replace(
        defaults,
        max_tokens=max_tokens if max_tokens is not None else defaults.max_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        **own,
    )


def with_parameters(sampling: Sampling, request: SharedParameters) -> Sampling:
    """Complete `sampling`, which a plugin's API has made from its own parameters, with the parameters that all APIs
    share."""
    taken = {
        name: value
        for name in SAMPLED
        if getattr(sampling, name) is None and (value := getattr(request, name)) is not None
    }
    return msgspec.structs.replace(
        sampling,
        **taken,
        stop_token_ids=(*sampling.stop_token_ids, *(request.stop_token_ids or ())),
        bad_words=(*sampling.bad_words, *(request.bad_words or ())),
        ignore_eos=sampling.ignore_eos or bool(request.ignore_eos),
        include_stop_str_in_output=(
            sampling.include_stop_str_in_output or bool(request.include_stop_str_in_output)
        ),
        logit_bias=_logit_bias(request) or sampling.logit_bias,
        allowed_token_ids=tuple(request.allowed_token_ids or sampling.allowed_token_ids),
    )


def with_defaults(sampling: Sampling, model: ServedModel) -> Sampling:
    """Complete `sampling` with the configured settings, and then with the model's recommended ones."""
    defaults = model.sampling
    missing = {
        name: getattr(defaults, name)
        for name in (*SAMPLED, "max_tokens")
        if getattr(sampling, name) is None
    }
    return msgspec.structs.replace(sampling, **missing)


def _stop(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stops:
        raise InvalidRequest(
            "Invalid 'stop': an empty string cannot be a stop string. Leave it out.",
            param="stop" if isinstance(stop, str) else ("stop", stops.index("")),
            code="invalid_value",
        )
    return stops


def _logit_bias(request: SharedParameters) -> dict[int, float] | None:
    if not request.logit_bias:
        return None
    try:
        return {int(token): bias for token, bias in request.logit_bias.items()}
    except ValueError:
        raise InvalidRequest(
            "logit_bias maps token ids, written as whole numbers, to a bias.", param="logit_bias"
        ) from None
