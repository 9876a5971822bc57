"""Stored prompts, which requests refer to by id instead of sending their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

PromptRole: TypeAlias = Literal["system", "developer", "user", "assistant"]


class TemplateMessage(Struct, frozen=True, kw_only=True):
    """A message of a prompt. `{{name}}` stands for a variable."""

    role: PromptRole
    content: str


class PromptTemplate(Struct, frozen=True, kw_only=True):
    """One version of a prompt. `{{name}}` stands for a variable."""

    text: str | None = None
    """The instructions."""
    messages: Sequence[TemplateMessage] = ()
    """Messages that precede the conversation."""
    variables: Sequence[str] = ()
    """Variables that requests may set, beyond those that the texts name."""


class StoredPrompt(Struct, frozen=True, kw_only=True):
    """A prompt with its versions."""

    default_version: str
    versions: Mapping[str, PromptTemplate]


@runtime_checkable
class PromptSource(Protocol):
    """An `Api` that keeps prompts, which requests to `/v1/responses` name by `prompt.id`."""

    async def find_prompt(self, prompt_id: str, owner: str | None) -> StoredPrompt | None:
        """Return the prompt with that id; None if `owner` has no such prompt. Called for each request that names
        one."""
        ...
