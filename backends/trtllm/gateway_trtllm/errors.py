"""Translates TensorRT-LLM's errors."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.sdk import EngineError, GatewayError, InvalidRequest, ParamPath

_NAMED = re.compile(r"\b(?P<name>[a-z_]+)=|\A(?:require [^a-z]*)?`?(?P<first>[a-z_]+)")
_OURS: Mapping[str, str | ParamPath] = {
    "bad": "bad_words",
    "embedding_bias": "logit_bias",
    "guided_decoding": ("text", "format"),
}
_SPEAKS_OF = frozenset(
    {
        "max_tokens",
        "min_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
        "stop_token_ids",
        "logprobs",
        "prompt_logprobs",
        "priority",
        "cache_salt",
        "bad_words",
        "logit_bias",
    }
)
# Messages of errors that only the request can cause; workers send them as plain text.
_REQUESTS_FAULT = re.compile(
    r"should not exceed|exceeds?\b|larger than|too long|must be|is invalid|not supported|unsupported|out of range|"
    r"vocab|grammar|json schema|lora",
    re.IGNORECASE,
)


def refused(error: Exception) -> InvalidRequest:
    """A 400 for an error of TensorRT-LLM's validation, with the parameter that its message names."""
    message = str(error)
    for match in _NAMED.finditer(message):
        name = match["name"] or match["first"]
        if name in _SPEAKS_OF or name in _OURS:
            return InvalidRequest(message, param=_OURS.get(name, name))
    if "prompt" in message and ("exceed" in message or "length" in message):
        return InvalidRequest(message, param="input", code="context_length_exceeded")
    return InvalidRequest(message)


def failed(error: Exception) -> GatewayError:
    """The error of a request that TensorRT-LLM's workers aborted: invalid request or engine error."""
    if _REQUESTS_FAULT.search(str(error)):
        return refused(error)
    return EngineError(f"TensorRT-LLM failed on this request: {error}")
