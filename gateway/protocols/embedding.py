"""Embeddings: what stands beside `Engine` for engines whose models turn texts into vectors."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

EmbeddingInput: TypeAlias = str | Sequence[int]
"""Token ids, for every engine with a tokenizer: the gateway has tokenized what was text. For others, what the client sent."""


class EmbeddingInfo(Struct, frozen=True, kw_only=True):
    """What is known of a model's vectors."""

    dimensions: int | None = None
    """Numbers in a vector; None: only the engine's upstream knows."""
    shorter: bool | tuple[int, ...] | None = False
    """Whether a request may ask for fewer (Matryoshka): any number, or these. None: the engine decides as it is asked."""
    max_input_tokens: int | None = None
    """The longest single input; None: only the engine's upstream knows."""


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """Texts to embed."""

    request_id: str
    inputs: Sequence[EmbeddingInput]
    """At least one, and none of them is empty."""
    dimensions: int | None = None
    """How many numbers each vector shall have; within what `EmbeddingInfo` allows."""
    adapter: str | None = None
    priority: int = 0
    """Lower runs earlier, as in vLLM."""
    user: str | None = None
    """Whom the client asks for: for engines that pass requests on. Others ignore it."""
    trace_headers: Mapping[str, str] | None = None


class EmbeddingResult(Struct, frozen=True, kw_only=True):
    """One vector for each input, in their order."""

    vectors: Sequence[array[float]]
    """Arrays of type code `f`: 32-bit floats."""
    prompt_tokens: int
    """Of all inputs together."""


@runtime_checkable
class EmbeddingEngine(Protocol):
    """What an `Engine` has besides, if its capabilities have `embeddings`.

    An engine whose model does nothing else has neither `tokens` nor `messages` among its capabilities: it is never asked
    to generate.
    """

    @property
    def embedding(self) -> EmbeddingInfo: ...

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """All vectors of `request`; a vector of fewer dimensions is cut, and has length 1 again.

        Cancelling the task that awaits it aborts the request in the engine. What cannot be embedded raises
        `InvalidRequest`, whose `param` is `input`, or `input[3]` for one of several; a failure of this request raises
        `EngineError`; a dead engine raises `EngineUnavailable`.
        """
        ...
