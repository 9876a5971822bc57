"""Routers: which models may answer a request, in order of trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class ModelLoad(Struct, frozen=True, kw_only=True):
    """A served model and its queue, at the time of a request."""

    name: str
    running: int
    waiting: int
    max_running: int
    max_waiting: int

    @property
    def full(self) -> bool:
        """Whether a further request would be rejected."""
        return self.running + self.waiting >= self.max_running + self.max_waiting


class RoutingRequest(Struct, frozen=True, kw_only=True):
    """The parts of a request that a router may use."""

    api: str
    """`responses`, `chat`, `completions`, `embeddings`, `rerank`, `score`, or the name of a plugin's API."""
    model: str | None
    """The model name in the request, if any."""
    owner: str | None
    """The name of the request's API key; None in anonymous mode."""
    size: int
    """Size of the request body in bytes."""
    models: Sequence[ModelLoad]
    """The models that can answer requests of this kind."""


class Router(Protocol):
    """Chooses the models of requests. Opened once at start-up."""

    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        """Return the names of the models that may answer, in order of trial; None leaves the request to the next
        router.

        Names that are not in `request.models` are skipped. The next candidate is tried if one is unavailable, if its
        queue is full, if the prompt is too long for it, or if its engine fails before its first output. Called once per
        request, before it is planned, while the client waits. A `GatewayError` rejects the request.
        """
        ...
