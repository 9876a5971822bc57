"""What engines read of models of Hugging Face's library `transformers`, as they have loaded them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.protocols import Sampling

_RECOMMENDED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def recommended_sampling(generation_config: Mapping[str, Any]) -> Sampling | None:
    """The recommended sampling among the settings that differ from the defaults."""
    found = {
        name: generation_config[name]
        for name in _RECOMMENDED
        if generation_config.get(name) is not None
    }
    return Sampling(**found) if found else None


def ending_tokens(first: int | None, more: int | Iterable[int] | None) -> tuple[int, ...]:
    """The ids of the tokens that end an output: the tokenizer's `first`, then those of the generation configuration."""
    found = [] if first is None else [int(first)]
    listed = [more] if isinstance(more, int) else more or ()
    found += [token_id for token_id in listed if token_id not in found]
    return tuple(found)


def chat_template_of(tokenizer: Any) -> str | None:
    """The tokenizer's chat template, or the one named `default` if there are several."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def special_token(tokenizer: Any, name: str) -> str | None:
    """The text of a special token (`bos_token`, `eos_token`)."""
    token = getattr(tokenizer, name, None)
    return None if token is None else str(token)


def first_problem(error: Exception) -> str:
    """One sentence of an error's message: the first problem of pydantic's errors, without their framing."""
    details = getattr(error, "errors", None)
    if not callable(details) or not (listed := details()):
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    first = listed[0]
    words = str(first.get("msg", error)).removeprefix("Value error, ")
    # Only the field name; pydantic's union branches follow it.
    return f"{first['loc'][0]}: {words}" if first.get("loc") else words
