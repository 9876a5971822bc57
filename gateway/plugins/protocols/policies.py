"""Policies: they decide what reaches a model, and how much of its output reaches the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from gateway.base.deltas import Delta
from gateway.plugins.protocols.prompt import Turn


class PolicyRequest(Struct, frozen=True, kw_only=True):
    """A request that is about to reach a model. A policy changes it with `msgspec.structs.replace`."""

    api: str
    """`responses`, `chat`, `completions`, `embeddings`, `rerank`, `score`, or the name of a plugin's API."""
    model: str
    """The model that will answer. A policy may name another one, as long as nothing was generated."""
    owner: str | None
    """The name of the request's API key; None in anonymous mode."""
    turn: Turn | None = None
    """The conversation, for generating APIs. From the second generation on, it includes results of tools."""
    texts: Sequence[str] = ()
    """Raw prompts, or texts to be embedded or scored, in the order of the request. Prompts of token ids are decoded."""


class PolicyRefusal(Struct, frozen=True):
    """Refuses a request, which then does not reach the model. `text` is the answer that the client reads."""

    text: str


Ending: TypeAlias = Literal["stop", "content_filter"]


class OutputFilter(Protocol):
    """Filters the output of one generation. Methods are synchronous and fast: `feed` is called for every token."""

    @property
    def ended(self) -> Ending | None:
        """The reason why the output ends here; None while it continues. Read after each `feed`. If it is set, the
        deltas that `feed` returned are the last output, and the engine is stopped."""
        ...

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return the deltas that may be shown in place of `deltas`. Others may be held back."""
        ...

    def finish(self) -> Sequence[Delta]:
        """Return the deltas that were held back, at the end of the output. Called once, unless the filter has ended the
        output."""
        ...


class Policy(Protocol):
    """Decides about prompts and outputs. Opened once at start-up."""

    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        """Accept `request` by returning it, change it, send it to another model, or refuse it.

        Called before each prompt of a model, so several times for an answer with tools. It may raise any
        `GatewayError`, which the client gets with its HTTP status.
        """
        ...

    def output(self, request: PolicyRequest) -> OutputFilter | None:
        """A filter for the output of one generation; None to leave it unchanged. Called once for each generation."""
        ...
