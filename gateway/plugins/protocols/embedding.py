"""Embeddings: the protocol of engines whose models turn texts into vectors."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

EmbeddingInput: TypeAlias = str | Sequence[int]
"""Token ids, if the engine has a tokenizer: the gateway has tokenized any text. Otherwise what the client sent."""


class EmbeddingInfo(Struct, frozen=True, kw_only=True):
    """Properties of a model's vectors."""

    dimensions: int | None = None
    """Length of a vector. None if only the engine's upstream knows."""
    shorter: bool | tuple[int, ...] | None = False
    """Whether a request may ask for shorter vectors (Matryoshka): any length, or only the given ones. None: the engine
    decides per request."""
    max_input_tokens: int | None = None
    """Maximum length of one input. None if only the engine's upstream knows."""


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """Texts to embed."""

    request_id: str
    inputs: Sequence[EmbeddingInput]
    """At least one input; none is empty."""
    dimensions: int | None = None
    """Requested vector length, within what `EmbeddingInfo` allows."""
    adapter: str | None = None
    priority: int = 0
    """Lower runs earlier, as in vLLM."""
    user: str | None = None
    """The client's end-user id. For engines that forward requests; others ignore it."""
    trace_headers: Mapping[str, str] | None = None


class EmbeddingResult(Struct, frozen=True, kw_only=True):
    """One vector per input, in the order of the inputs."""

    vectors: Sequence[array[float]]
    """Arrays of type code `f` (32-bit floats)."""
    prompt_tokens: int
    """Sum over all inputs."""


@runtime_checkable
class EmbeddingEngine(Protocol):
    """The additional methods of an `Engine` whose capabilities include `embeddings`.

    An engine whose model only embeds has neither `tokens` nor `messages` among its capabilities, and is never asked to
    generate.
    """

    @property
    def embedding(self) -> EmbeddingInfo: ...

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """Embed all inputs. A vector that is shortened to fewer dimensions is normalized to length 1 again.

        Cancelling the awaiting task aborts the request in the engine. Raises `InvalidRequest` for an input that cannot
        be embedded (`param` is `input`, or `input[3]` for one of several), `EngineError` if this request fails, and
        `EngineUnavailable` if the engine is down.
        """
        ...
