"""Base class and checks for engines whose model embeds and does not generate."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.engines.request_checks import check_vocabulary
from gateway.plugins.protocols import EmbeddingRequest, EngineOutput, EngineRequest


class EmbeddingOnly:
    """The methods of `Engine` that generate, for engines that only embed. They raise `Unsupported`."""

    async def check(self, request: EngineRequest) -> None:
        raise only_embeds()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        raise only_embeds()
        yield EngineOutput()


def only_embeds() -> Unsupported:
    """The error for a request to generate."""
    return Unsupported("This model only embeds. Use /v1/embeddings.", param="model")


def checked_tokens(
    request: EmbeddingRequest, index: int, *, vocabulary: int, max_tokens: int | None
) -> list[int]:
    """The token ids of one input of `request`.

    Raises `InvalidRequest` if they are too many or outside the vocabulary, and `Unsupported` for a text.
    """
    ids = request.inputs[index]
    param = ("input", index)
    if isinstance(ids, str):
        raise Unsupported("This engine takes inputs as tokens.", param=param)
    if max_tokens is not None and len(ids) > max_tokens:
        raise InvalidRequest(
            f"The input has {len(ids)} tokens, and the model embeds {max_tokens} at most. Shorten it.",
            param=param,
            code="context_length_exceeded",
        )
    check_vocabulary(ids, vocabulary, param)
    return ids if isinstance(ids, list) else list(ids)
