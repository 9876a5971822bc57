"""TensorRT-LLM's refusals in the gateway's words."""

from __future__ import annotations

import re

from gateway.errors import EngineError, GatewayError, InvalidRequest

_NAMED = re.compile(r"\b(?P<name>[a-z_]+)=|\A(?:require [^a-z]*)?`?(?P<first>[a-z_]+)")
_OURS = {"bad": "bad_words", "embedding_bias": "logit_bias", "guided_decoding": "text.format"}
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
    }
)
# What only a request can be at fault for; it comes from the workers as a bare sentence.
_REQUESTS_FAULT = re.compile(
    r"should not exceed|exceeds?\b|larger than|too long|must be|is invalid|not supported|unsupported|out of range|"
    r"vocab|grammar|json schema|lora",
    re.IGNORECASE,
)


def refused(error: Exception) -> InvalidRequest:
    """The 400 for an error of TensorRT-LLM's own validation, with the parameter that its sentence names."""
    message = str(error)
    for match in _NAMED.finditer(message):
        name = match["name"] or match["first"]
        name = _OURS.get(name, name)
        if name in _SPEAKS_OF or name in _OURS.values():
            return InvalidRequest(message, param=name)
    if "prompt" in message and ("exceed" in message or "length" in message):
        return InvalidRequest(message, param="input", code="context_length_exceeded")
    return InvalidRequest(message)


def failed(error: Exception) -> GatewayError:
    """A request that TensorRT-LLM's workers gave up on: its own fault, or the engine's."""
    if _REQUESTS_FAULT.search(str(error)):
        return refused(error)
    return EngineError(f"TensorRT-LLM failed on this request: {error}")
