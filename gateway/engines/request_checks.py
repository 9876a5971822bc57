"""Checks of requests that several engines make, and their errors."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.base.errors import InvalidRequest, ParamPath, Unsupported
from gateway.plugins.protocols import EngineRequest, TokensPrompt


def prompt_tokens(request: EngineRequest, *, vocabulary: int) -> list[int]:
    """The token ids of the prompt. Raises `Unsupported` for messages, and `InvalidRequest` if it is empty or an id is outside a
    vocabulary of `vocabulary` tokens."""
    prompt = request.prompt
    if not isinstance(prompt, TokensPrompt):
        raise Unsupported("This engine takes prompts as tokens, not as messages.", param="input")
    ids = prompt.token_ids if isinstance(prompt.token_ids, list) else list(prompt.token_ids)
    if not ids:
        raise InvalidRequest("The prompt is empty.", param="input")
    check_vocabulary(ids, vocabulary, "input")
    return ids


def check_vocabulary(ids: Sequence[int], vocabulary: int, param: str | ParamPath) -> None:
    """Raise `InvalidRequest` for an id outside a vocabulary of `vocabulary` tokens."""
    if ids and (min(ids) < 0 or max(ids) >= vocabulary):
        wrong = next(token for token in ids if not 0 <= token < vocabulary)
        raise InvalidRequest(
            f"Token id {wrong} is outside the model's vocabulary of {vocabulary} tokens.",
            param=param,
        )


def context_exceeded(prompt_length: int, context: int) -> InvalidRequest:
    """The error for a prompt of `prompt_length` tokens that leaves no room in the model's context of `context` tokens."""
    return InvalidRequest(
        f"The input has {prompt_length} tokens, and the model's context is {context} tokens for input and output together. "
        "Shorten the input.",
        param="input",
        code="context_length_exceeded",
    )


def unknown_adapter(name: str, known: Collection[str]) -> InvalidRequest:
    """The error for a request with an adapter that the model does not have."""
    return InvalidRequest(
        f"There is no adapter '{name}'; known: {', '.join(known) or 'none'}.",
        param="model",
        code="model_not_found",
    )
