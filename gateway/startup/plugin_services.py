"""Services for open plugins; see `gateway.plugins.protocols.services`."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final

import msgspec

from gateway.answers.embeddings.answer import prepare_embeddings
from gateway.answers.scoring.answer import prepare_rerank
from gateway.base.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    InvalidRequest,
)
from gateway.engines.vectors import normalized
from gateway.models.model_slot import ModelUse
from gateway.observe.metrics import several_processes
from gateway.observe.request_context import (
    RequestContext,
    as_the_gateway,
    current_context,
    current_principal,
)
from gateway.plugins.protocols import (
    Delegation,
    InternalAnswer,
    Principal,
    PrincipalLimits,
    ServicesUser,
    SharedValues,
    Tokenizer,
)
from gateway.services import Services
from gateway.startup.plugin_metrics import (
    MetricTable,
    PluginCounter,
    PluginGauge,
    PluginHistogram,
    PluginMetrics,
)
from gateway.startup.plugin_tasks import PluginTasks
from gateway.wire.embeddings import EmbeddingsRequest, Input
from gateway.wire.scoring import RerankRequest

_MAX_HALVINGS: Final = 8
"""Maximum number of times that documents are halved if they are too long for a reranking model."""
_SHORTEST_HALVED: Final = 64
"""Minimum number of characters of a document that is halved."""


class PluginServices:
    """Implements `gateway.plugins.protocols.GatewayServices`."""

    def __init__(self, services: Services, metrics: PluginMetrics, tasks: PluginTasks) -> None:
        self._services = services
        self._metrics = metrics
        self._tasks = tasks

    @property
    def values(self) -> SharedValues:
        return self._services.values

    def embedder(self, model: str) -> ServedEmbedder:
        return ServedEmbedder(self._services, self._served(model, "embeds", "embed"))

    def reranker(self, model: str) -> ServedReranker:
        return ServedReranker(self._services, self._served(model, "reranks", "rerank"))

    def counter(self, name: str, description: str, labels: Sequence[str] = ()) -> PluginCounter:
        return self._metrics.counter(name, description, labels)

    def gauge(self, name: str, description: str, labels: Sequence[str] = ()) -> PluginGauge:
        return self._metrics.gauge(name, description, labels)

    def histogram(
        self,
        name: str,
        description: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = (),
    ) -> PluginHistogram:
        return self._metrics.histogram(name, description, labels, buckets)

    def start_task(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        return self._tasks.start(work, name=name)

    async def close(self) -> None:
        """End the plugin's tasks, and remove its metrics."""
        await self._tasks.close()
        self._metrics.close()

    def keep_runs(self, most: int) -> None:
        self._services.keep_runs(most)

    def delegation(self, *, models: Sequence[str] = ()) -> Delegation:
        return Delegation(principal=current_principal(), models=models)

    async def send(
        self,
        path: str,
        body: bytes,
        *,
        delegation: Delegation,
        priority: int = 0,
        request_id: str | None = None,
        max_bytes: int = 67_108_864,
    ) -> InternalAnswer:
        send = self._services.send
        if send is None:
            raise EngineUnavailable("The server is still starting.")
        principal = self._services.authenticator.delegate(delegation.principal)
        inside = current_context() is not None
        if principal is not None:
            principal = _allowed(principal, delegation.models, within=inside)
        context = RequestContext(
            request_id or "",
            method="POST",
            principal=principal,
            priority=priority,
            is_internal=True,
            waits_for_room=not inside,
        )
        # In a new task, which has its own current request.
        return await asyncio.create_task(send(path, body, context=context, max_bytes=max_bytes))

    def _served(self, model: str, use: ModelUse, verb: str) -> str:
        """The model's own name. Raises `ConfigurationError` if the model does not support `use`. The error lists models
        that do.

        A model that is not loaded yet is accepted, because it may support `use`.
        """
        slots = self._services.slots
        slot = slots.find(model)
        able = [name for each in slots.slots.values() if each.may(use) for name in each.names]
        names = ", ".join(able) or "none"
        if slot is None:
            raise ConfigurationError(
                f"no model {model!r} is configured; models that {verb}: {names}."
            )
        if slot.state == "failed":
            raise ConfigurationError(f"the model {slot.name!r} could not be opened; see the log.")
        if not slot.may(use):
            raise ConfigurationError(
                f"the model {slot.name!r} does not {verb}; models that do: {names}."
            )
        return model if model in slot.adapters else slot.name


def _allowed(principal: Principal, models: Sequence[str], *, within: bool) -> Principal:
    """The principal of a request that a plugin sends. `within`: whether the plugin sends it while it handles a
    request."""
    if models and principal.models is not None:
        principal = msgspec.structs.replace(principal, models=[*principal.models, *models])
    if within and principal.limits.any:
        limits = PrincipalLimits(
            tokens_per_minute=principal.limits.tokens_per_minute,
            tokens_per_day=principal.limits.tokens_per_day,
        )
        principal = msgspec.structs.replace(principal, limits=limits)
    return principal


class GivenServices:
    """Hands services to open plugins, and takes them back."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._metrics = MetricTable(
            services.metrics.registry, several_processes=several_processes()
        )
        self._given: list[tuple[object, PluginServices]] = []

    def give(self, plugin: object, name: str) -> None:
        """Hand services to an open plugin, if it uses any. `name` is the plugin's name in the configuration. Raises
        `ConfigurationError`."""
        if isinstance(plugin, ServicesUser):
            given = PluginServices(
                self._services, PluginMetrics(self._metrics, name), PluginTasks(name)
            )
            self._given.append((plugin, given))
            plugin.use(given)

    async def take_back(self, plugin: object) -> None:
        """End the tasks of a plugin that is about to be closed, and remove its metrics."""
        taken = [given for each, given in self._given if each is plugin]
        self._given = [entry for entry in self._given if entry[0] is not plugin]
        for given in taken:
            await given.close()

    async def close(self) -> None:
        """End the tasks of all plugins, and remove their metrics."""
        given, self._given = self._given, []
        await asyncio.gather(*(each.close() for _, each in given))


class ServedEmbedder:
    """Implements `gateway.plugins.protocols.Embedder`."""

    def __init__(self, services: Services, model: str) -> None:
        self._services = services
        self.model = model

    async def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        if not texts:
            return []
        # Does not wait until another model is unloaded: a request that uses that model may be waiting for this one,
        # which would be a deadlock.
        with as_the_gateway():
            async with self._services.lookup.loaded(self.model, "embeds", waits_for_room=False):
                return await self._embed(texts)

    async def _embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        model, engine = self._services.lookup.embedding_model(self.model)
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
            raise run.scope.error or EngineError("The embedding failed.")
        taken = iter(vectors)
        return [_mean([next(taken) for _ in each]) for each in parts]


class ServedReranker:
    """Implements `gateway.plugins.protocols.Reranker`."""

    def __init__(self, services: Services, model: str) -> None:
        self._services = services
        self.model = model

    async def scores(self, query: str, documents: Sequence[str]) -> Sequence[float]:
        if not documents:
            return []
        if not all(text.strip() for text in (query, *documents)):
            raise InvalidRequest(
                f"The model '{self.model}' scores no empty text. Leave empty documents out."
            )
        with as_the_gateway():
            async with self._services.lookup.loaded(self.model, "reranks", waits_for_room=False):
                return await self._scores(query, documents)

    async def _scores(self, query: str, documents: Sequence[str]) -> Sequence[float]:
        parts = list(enumerate(documents))
        for halvings in range(_MAX_HALVINGS + 1):
            try:
                scores = await self._scores_of(query, [text for _, text in parts])
                break
            except InvalidRequest as error:
                if error.code != "context_length_exceeded" or halvings == _MAX_HALVINGS:
                    raise
                longest = max(len(text) for _, text in parts)
                if longest < _SHORTEST_HALVED:  # then the query is too long
                    raise
                parts = [
                    (index, part)
                    for index, text in parts
                    for part in (_halves(text) if len(text) > longest // 2 else (text,))
                ]
        best = [-math.inf] * len(documents)
        for (index, _), score in zip(parts, scores, strict=True):
            best[index] = max(best[index], score)
        return best

    async def _scores_of(self, query: str, documents: list[str]) -> Sequence[float]:
        asked = RerankRequest(model=self.model, query=query, documents=documents)
        run = await prepare_rerank(asked, self._services)
        scores = await run.scores()
        if scores is None:
            raise run.scope.error or EngineError("The scoring failed.")
        return scores


def _halves(text: str) -> Sequence[str]:
    """Split `text` into two parts, at a space near the middle if there is one. Parts that are only white space are left
    out."""
    middle = len(text) // 2
    cut = text.rfind(" ", middle // 2, middle) + 1 or middle
    return [part for part in (text[:cut], text[cut:]) if part.strip()]


def _tokenized(texts: Sequence[str], tokenizer: Tokenizer, most: int | None) -> list[list[Input]]:
    return [list(_parts(text, tokenizer, most)) for text in texts]


def _parts(text: str, tokenizer: Tokenizer, most: int | None) -> Iterator[Input]:
    """Yields the token ids of `text` in parts of at most `most` tokens. The text is split, not the tokens, because each
    part needs the model's special tokens around it."""
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
        raise EngineError("The engine returned vectors of different lengths.")
    return normalized(array("f", map(sum, zip(*vectors, strict=True))))
