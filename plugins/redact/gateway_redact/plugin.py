"""Registers the policy."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.sdk import OpenPolicy, Register, hookimpl
from gateway_redact.policy import RedactPolicy
from gateway_redact.redaction import Redaction


class RedactConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[policies.redact]`."""

    patterns: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]
    """Regular expressions of Python's `re`."""
    replacement: str = "[redacted]"
    """What replaces a match. It has no quotes, backslashes or control characters, because arguments of calls are JSON."""
    window: Annotated[int, Meta(ge=1, le=4096)] = 128
    """Maximum length of a match, in characters. A stream is this far behind the model."""
    prompts: Literal["redact", "refuse", "pass"] = "redact"
    """What is done with prompts that have a match: redact it, refuse the request, or nothing."""
    output: bool = True
    """Whether output is redacted."""
    refusal: str = (
        "This request cannot be answered, because it has content that this server does not pass on."
    )
    """The answer to a request that is refused."""
    max_chars: Annotated[int, Meta(ge=1)] = 1_000_000
    """Maximum number of characters of a prompt. Longer ones are rejected with 400."""

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"patterns: {pattern!r} is not a regular expression: {error}"
                ) from None
        if any(char in '"\\' or ord(char) < 32 for char in self.replacement):
            raise ValueError("replacement has no quotes, backslashes or control characters.")


@asynccontextmanager
async def open_redact(config: RedactConfig) -> AsyncIterator[RedactPolicy]:
    """The policy; it needs no resources."""
    redaction = Redaction(
        [re.compile(pattern) for pattern in config.patterns],
        config.replacement,
        window=config.window,
    )
    yield RedactPolicy(
        None if config.prompts == "pass" else redaction,
        redaction if config.output else None,
        refusal=config.refusal if config.prompts == "refuse" else None,
        max_chars=config.max_chars,
    )


@hookimpl
def gateway_register_policies(register: Register[OpenPolicy]) -> None:
    register(
        "redact",
        open_redact,
        config=RedactConfig,
        summary="replaces what matches patterns, in prompts and output",
    )
