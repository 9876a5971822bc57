"""What the gateway does for the plugins that it has opened."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class Embedder(Protocol):
    """A configured model that turns texts into vectors."""

    @property
    def model(self) -> str:
        """Its own name, where an alias may have been asked for."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        """A vector for each text, of length 1: their scalar products are their cosines. Arrays of type code `f`.

        A text that is longer than the model takes at once is embedded in parts, and its vector is the mean of theirs. It
        waits in the model's queue, and is limited in time and counted, as requests of clients are. Raises what they are
        told: `RateLimited` where the queue is full, `EngineUnavailable`, `EngineError`, `DeadlineExceeded`, and
        `InvalidRequest` for a text that cannot be embedded. Cancelling the task that awaits it aborts it in the engine.
        """
        ...


class GatewayServices(Protocol):
    """What a plugin may use of the gateway, as long as it is open."""

    def embedder(self, model: str) -> Embedder:
        """The model of that name or alias. Raises `ConfigurationError` where there is none, or where it does not embed."""
        ...


@runtime_checkable
class UsesServices(Protocol):
    """A `ToolServer`, `ToolServers`, `Front` or resource that uses what the gateway has."""

    def use(self, services: GatewayServices) -> None:
        """Called once: when all models, resources, fronts and tools are open, before the first request. Must not block.

        The `tools` of a server may have been asked for before. May raise `ConfigurationError`, which stops the start.
        """
        ...
