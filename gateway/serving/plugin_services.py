"""What the gateway does for the plugins that it has opened: see `gateway.protocols.services`."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Sequence

from gateway.embeddings.answer import prepare_embeddings
from gateway.engines.vectors import normalized
from gateway.errors import ConfigurationError, EngineError, InvalidRequest, ModelNotFound
from gateway.protocols import Tokenizer
from gateway.serving.served import Services
from gateway.wire.embeddings import EmbeddingsRequest, Input


class PluginServices:
    """Satisfies `gateway.protocols.GatewayServices`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def embedder(self, model: str) -> ServedEmbedder:
        known = self._services.models.values()
        embed = ", ".join(each.name for each in known if each.embedder is not None) or "none"
        try:
            found = self._services.known_model(model)
        except ModelNotFound:
            raise ConfigurationError(
                f"no model {model!r} is configured; models that embed: {embed}."
            ) from None
        if found.embedder is None:
            raise ConfigurationError(
                f"the model {found.name!r} does not embed; models that do: {embed}."
            )
        return ServedEmbedder(self._services, found.name)


class ServedEmbedder:
    """Satisfies `gateway.protocols.Embedder`."""

    def __init__(self, services: Services, model: str) -> None:
        self._services = services
        self.model = model

    async def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        if not texts:
            return []
        model, engine = self._services.embedding_model(self.model)
        parts: list[list[Input]] = [[text] for text in texts]
        if model.engine.tokenizer is not None:
            parts = await asyncio.to_thread(
                _tokenized, texts, model.engine.tokenizer, engine.embedding.max_input_tokens
            )
        for index, each in enumerate(parts):
            if not each or not each[0]:
                raise InvalidRequest(
                    f"The model '{self.model}' has no token for the text {texts[index][:50]!r}, so there is nothing to embed."
                )
        asked = EmbeddingsRequest(
            model=self.model,
            inputs=[part for each in parts for part in each],
            several=True,
        )
        run = await prepare_embeddings(asked, self._services, size=0)
        vectors = await run.vectors()
        if vectors is None:
            raise run.error or EngineError("The embedding failed.")
        taken = iter(vectors)
        return [_mean([next(taken) for _ in each]) for each in parts]


def _tokenized(texts: Sequence[str], tokenizer: Tokenizer, most: int | None) -> list[list[Input]]:
    return [list(_parts(text, tokenizer, most)) for text in texts]


def _parts(text: str, tokenizer: Tokenizer, most: int | None) -> Iterator[Input]:
    """The tokens of `text`, in as many parts as it takes for none to have more than `most`; each with the model's own marks
    around it, which is why it is the text that is cut."""
    ids = tokenizer.encode(text, add_special_tokens=True)
    if most is None or len(ids) <= most or len(text) < 2:
        if ids:
            yield ids
        return
    middle = len(text) // 2
    cut = text.rfind(" ", middle // 2, middle) + 1 or middle
    yield from _parts(text[:cut], tokenizer, most)
    yield from _parts(text[cut:], tokenizer, most)


def _mean(vectors: Sequence[array[float]]) -> array[float]:
    if len({len(vector) for vector in vectors}) > 1:
        raise EngineError("The engine gave vectors of several lengths.")
    return normalized(array("f", map(sum, zip(*vectors, strict=True))))
