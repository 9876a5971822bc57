"""Request hints that affect how a request is served, not its answer. Passed to engines that forward requests."""

from __future__ import annotations

from gateway.wire.chat import ChatRequest
from gateway.wire.completions import CompletionRequest
from gateway.wire.request import ResponseRequest

_NAMES = (
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
)


def hints_of(request: ResponseRequest | ChatRequest | CompletionRequest) -> dict[str, str]:
    """The hints that the client sent, by their API names, plus `verbosity` and `reasoning_summary`."""
    given = {name: getattr(request, name, None) for name in _NAMES}
    if isinstance(request, ChatRequest):
        given["verbosity"] = request.verbosity
    elif isinstance(request, ResponseRequest):
        given["verbosity"] = request.text.verbosity or None
        given["reasoning_summary"] = (
            request.reasoning.requested_summary if request.reasoning else None
        )
    return {name: value for name, value in given.items() if value}
