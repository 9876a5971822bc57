"""Parameters that affect how a request is served, but not its answer. Engines that forward requests pass them on."""

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
_NAMES_OF = {
    api: tuple(name for name in _NAMES if name in api.__struct_fields__)
    for api in (ResponseRequest, ChatRequest, CompletionRequest)
}
"""The hints that each API's requests have."""


def hints_of(request: ResponseRequest | ChatRequest | CompletionRequest) -> dict[str, str]:
    """Return the hints that the client sent, by parameter name; also `verbosity` and `reasoning_summary`."""
    given: dict[str, str] = {
        name: value for name in _NAMES_OF[type(request)] if (value := getattr(request, name))
    }
    if isinstance(request, ChatRequest):
        if request.verbosity:
            given["verbosity"] = request.verbosity
    elif isinstance(request, ResponseRequest):
        if request.text.verbosity:
            given["verbosity"] = request.text.verbosity
        if request.reasoning and (summary := request.reasoning.requested_summary):
            given["reasoning_summary"] = summary
    return given
