"""What `/v1/prompts` takes and answers, in the form of OGX (Llama Stack)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from gateway.sdk import InvalidRequest
from gateway.sdk.wire import Value

Name: TypeAlias = Annotated[str, Meta(pattern=r"^\w{1,64}$")]
Variables: TypeAlias = Annotated[list[Name], Meta(max_length=1000)]
Number: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]

_PLACEHOLDER: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class PromptObject(Value, frozen=True, kw_only=True):
    """One version of a prompt."""

    prompt: str
    version: int
    prompt_id: str
    variables: Sequence[str]
    is_default: bool


class PromptList(Value, frozen=True, kw_only=True):
    data: Sequence[PromptObject]


class CreatePrompt(Value, frozen=True, kw_only=True):
    """The body of `POST /v1/prompts`."""

    prompt: str
    variables: Variables | None = None


class UpdatePrompt(Value, frozen=True, kw_only=True):
    """The body of `POST /v1/prompts/{prompt_id}`."""

    prompt: str
    version: Number
    """The latest version, which the new one follows."""
    variables: Variables | None = None
    set_as_default: bool = True


class SetDefault(Value, frozen=True, kw_only=True):
    """The body of `POST /v1/prompts/{prompt_id}/set-default-version`."""

    version: Number


def check_declared(prompt: str, variables: Sequence[str]) -> None:
    """Raise `InvalidRequest` if the text names variables that are not declared."""
    if undeclared := sorted({*_PLACEHOLDER.findall(prompt)} - {*variables}):
        names = ", ".join(name[:64] for name in undeclared[:16])
        raise InvalidRequest(
            f"Prompt contains undeclared variables: {names}. Name them in 'variables'.",
            param="variables",
            code="undeclared_prompt_variables",
        )
