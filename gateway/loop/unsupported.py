"""Parameters that the gateway knows but does not support, and that would change the answer if ignored."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.errors import Unsupported
from gateway.protocols import Capability
from gateway.wire.sampling import SamplingParameters


def refuse(request: SamplingParameters, refused: Mapping[str, str]) -> None:
    """Raise `Unsupported` for parameters that the gateway does not support. `refused` maps names to messages."""
    for name, message in refused.items():
        if getattr(request, name, None):
            raise Unsupported(message, param=name)
    best_of = getattr(request, "best_of", None)
    if best_of is not None and best_of > (getattr(request, "n", None) or 1):
        raise Unsupported(
            "best_of is not supported on this server: all generated choices are returned.",
            param="best_of",
        )
    if getattr(request, "length_penalty", None) not in (None, 1.0):
        raise Unsupported(
            "length_penalty requires beam search, which is not supported on this server.",
            param="length_penalty",
        )
    if getattr(request, "spaces_between_special_tokens", None) is False:
        raise Unsupported(
            "Special tokens are written by the engine's own rule here. Leave the parameter out.",
            param="spaces_between_special_tokens",
        )


def refuse_scores(request: SamplingParameters, capabilities: frozenset[Capability]) -> None:
    """Raise `Unsupported` if log probabilities are requested and the engine has none."""
    if getattr(request, "logprobs", None) not in (None, False) and "logprobs" not in capabilities:
        raise Unsupported(
            "The engine of this model gives no log probabilities. Leave the parameter out.",
            param="logprobs",
        )
    asked = getattr(request, "prompt_logprobs", None)
    if asked is not None and "prompt_logprobs" not in capabilities:
        raise Unsupported(
            "The engine of this model gives no log probabilities of the prompt.",
            param="prompt_logprobs",
        )
