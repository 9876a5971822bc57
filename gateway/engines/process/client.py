"""The server processes' side of engines in other processes."""

from __future__ import annotations

import logging
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import NoneType
from typing import Final, cast

from gateway.base.errors import EngineUnavailable, GatewayError
from gateway.engines.process.connection import EngineConnection
from gateway.engines.process.link import EngineLink
from gateway.engines.process.messages import (
    Description,
    PlaceRequest,
    PlaceUsed,
    QueueLimits,
    WireRequest,
    WireVectors,
    to_wire,
)
from gateway.engines.process.starting import EngineSpec, EngineStarter
from gateway.engines.process.tokenizer import ListingProcessTokenizer, ProcessTokenizer
from gateway.plugins.protocols import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineOutput,
    EngineRequest,
    MetricSample,
    ModelInfo,
    OutputFormat,
    Principal,
    ScoreRequest,
    ScoreResult,
    ScoringInfo,
    TokensPrompt,
)

logger = logging.getLogger("gateway.engines.process.client")

_HEALTH_SECONDS: Final = 5.0


class ProcessEngine:
    """An `Engine` in another process. Subclasses implement the optional protocols: see `engine_in_process`."""

    def __init__(self, link: EngineLink, description: Description) -> None:
        self._link = link
        self._description = description
        self._capabilities = cast("frozenset[Capability]", frozenset(description.capabilities))
        self._tokenizer: ProcessTokenizer | None = None
        if description.added_tokens is not None:
            self._tokenizer = ListingProcessTokenizer(lambda: link.path, description.added_tokens)
        elif description.has_tokenizer:
            self._tokenizer = ProcessTokenizer(lambda: link.path)

    @property
    def info(self) -> ModelInfo:
        return self._description.info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._capabilities

    @property
    def tokenizer(self) -> ProcessTokenizer | None:
        return self._tokenizer

    @property
    def last_priority(self) -> int | None:
        """See `PrioritizingEngine`."""
        return self._description.last_priority

    @property
    def queue(self) -> SharedQueue | None:
        """The queue that all server processes share; None if there is only one server process."""
        return None if self._link.limits is None else SharedQueue(self._link)

    async def check(self, request: EngineRequest) -> None:
        await self._link.connection.call("check", self._wire(request), NoneType)

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        return self.generate_pushing(request, lambda output: False)

    async def generate_pushing(
        self, request: EngineRequest, push: Callable[[EngineOutput], bool]
    ) -> AsyncGenerator[EngineOutput, None]:
        """See `PushingEngine`."""
        connection = self._link.connection
        stream = connection.start(self._wire(request), push)
        try:
            while True:
                output = await stream.take()
                yield output
                if output.finish_reason is not None:
                    return
        finally:
            connection.end(stream)

    async def health(self) -> None:
        await self._link.connection.call("health", None, NoneType, seconds=_HEALTH_SECONDS)

    async def reopened(self, connection: EngineConnection, description: Description) -> None:
        """Note that the engine was opened again, with this description. Called before requests use it."""
        self._describe_again(description)

    def _describe_again(self, description: Description) -> None:
        self._description = description
        self._capabilities = cast("frozenset[Capability]", frozenset(description.capabilities))

    def _wire(self, request: EngineRequest) -> WireRequest:
        return to_wire(request, with_turn=self._description.takes_turns)


class _Counting(ProcessEngine):
    async def count(self, prompt: TokensPrompt) -> int:
        request = EngineRequest(request_id="", prompt=prompt)
        return await self._link.connection.call("count", self._wire(request), int)


class _Embedding(ProcessEngine):
    @property
    def embedding(self) -> EmbeddingInfo:
        assert self._description.embedding is not None, "it embeds"
        return self._description.embedding

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        result = await self._link.connection.call("embed", request, WireVectors)
        vectors = [array("f", each) for each in result.vectors]
        return EmbeddingResult(vectors=vectors, prompt_tokens=result.prompt_tokens)


class _Scoring(ProcessEngine):
    @property
    def scoring(self) -> ScoringInfo:
        assert self._description.scoring is not None, "it reranks"
        return self._description.scoring

    async def score(self, request: ScoreRequest) -> ScoreResult:
        return await self._link.connection.call("score", request, ScoreResult)


class _AdapterLoading(ProcessEngine):
    def __init__(self, link: EngineLink, description: Description) -> None:
        super().__init__(link, description)
        self._loaded: dict[str, str] = {}
        """Maps the names of adapters that were loaded while the engine ran to their paths. The engine is opened without
        them."""

    async def load_adapter(self, name: str, path: str) -> None:
        await self._load_adapter(self._link.connection, name, path)
        self._loaded[name] = path

    async def unload_adapter(self, name: str) -> None:
        if name in self.info.adapters or name not in self._loaded:
            self._describe_again(
                await self._link.connection.call("unload_adapter", name, Description)
            )
        self._loaded.pop(name, None)

    async def reopened(self, connection: EngineConnection, description: Description) -> None:
        """Also load the adapters again. An adapter that can no longer be loaded is logged, and left out of
        `info.adapters`."""
        await super().reopened(connection, description)
        for name, path in self._loaded.items():
            if name in self.info.adapters:
                continue  # another server process has loaded it
            try:
                await self._load_adapter(connection, name, path)
            except EngineUnavailable:
                return  # the engine's process has ended again
            except GatewayError as error:
                logger.error(  # noqa: TRY400  # a sentence, not a trace
                    "model %s: the adapter %s could not be loaded again after its engine's process had ended: %s",
                    self.info.name,
                    name,
                    error.message,
                )

    async def _load_adapter(self, connection: EngineConnection, name: str, path: str) -> None:
        self._describe_again(await connection.call("load_adapter", (name, path), Description))


class _Measured(ProcessEngine):
    _samples: Sequence[MetricSample] = ()

    def metrics(self) -> Sequence[MetricSample]:
        """The values of the last `refresh_metrics`."""
        return self._samples

    async def refresh_metrics(self) -> None:
        try:
            self._samples = await self._link.connection.call("metrics", None, list[MetricSample])
        except EngineUnavailable:
            self._samples = ()


class _FormatAware(ProcessEngine):
    def use_format(self, output_format: OutputFormat) -> None:
        """Do nothing: the other process has chosen the same format."""


class _Late(ProcessEngine):
    def may_refuse(self, request: EngineRequest) -> bool:
        """Return True. The engine itself is not asked, because this method cannot wait for its answer."""
        return True


class SharedQueue:
    """A model's queue in its engine's process. Its limits apply to all server processes together."""

    def __init__(self, link: EngineLink) -> None:
        self._link = link

    def resize(self, limits: QueueLimits) -> None:
        """Use other limits for new requests."""
        self._link.limits = limits
        try:
            self._link.connection.call_without_reply("resize", limits)
        except EngineUnavailable:
            return  # the engine gets the limits when it is opened again

    async def reserve(
        self, principal: Principal | None, prompt: int, *, several: bool, priority: int = 0
    ) -> SharedPlace:
        """Reserve a place for a prompt of `prompt` tokens. `priority` is added to the principal's priority. `several`:
        whether there is more than one principal. Raises `RateLimited` if no place is free."""
        connection = self._link.connection
        place = PlaceRequest(
            None if principal is None else principal.name,
            0 if principal is None else principal.priority,
            1.0 if principal is None else principal.weight,
            prompt,
            several,
            priority,
        )
        number, running = await connection.call("reserve", place, tuple[int, bool])
        return SharedPlace(self._link, number, running=running)


class SharedPlace:
    """A place in a `SharedQueue`. `end` must be called, so that the place becomes free."""

    def __init__(self, link: EngineLink, number: int, *, running: bool) -> None:
        self._connection = link.connection
        self._number = number
        self._running = running
        self._ended = False

    async def begin(self) -> None:
        """Wait for the request's turn in the queue."""
        if not self._running:
            await self._connection.call("begin", self._number, NoneType)
            self._running = True

    def end(self) -> None:
        """Free the place, whether it was used or not. Idempotent."""
        if not self._ended:
            self._ended = True
            self._connection.call_without_reply("end", self._number)

    def used(self, prompt: int, output: int) -> None:
        """Report the numbers of tokens that the request has used. Called after `end`."""
        self._connection.call_without_reply("used", PlaceUsed(self._number, prompt, output))


@asynccontextmanager
async def engine_in_process(
    spec: EngineSpec, starter: EngineStarter, limits: QueueLimits | None = None
) -> AsyncIterator[ProcessEngine]:
    """An engine in its own process, until the context is left. Raises `ConfigurationError` if it cannot be opened.

    The result implements the same optional protocols as the engine itself. If the process dies, running requests fail
    with `EngineUnavailable`, and the process is started again, unless `starter` refuses. `limits` are the limits of the
    queue that several server processes share; None if there is only one.
    """
    again: list[ProcessEngine] = []

    async def reopened(connection: EngineConnection, description: Description) -> None:
        for engine in again:
            await engine.reopened(connection, description)

    link = EngineLink(spec, starter, limits, reopened)
    try:
        description = await link.open()
        engine = _class_for(description)(link, description)
        again.append(engine)
        yield engine
    finally:
        await link.close()
        for each in again:
            if each.tokenizer is not None:
                each.tokenizer.close()


def _class_for(description: Description) -> type[ProcessEngine]:
    parts: list[type[ProcessEngine]] = []
    if description.counts:
        parts.append(_Counting)
    if description.embedding is not None:
        parts.append(_Embedding)
    if description.scoring is not None:
        parts.append(_Scoring)
    if description.loads_adapters:
        parts.append(_AdapterLoading)
    if description.measured:
        parts.append(_Measured)
    if description.takes_turns:
        parts.append(_FormatAware)
    if description.late:
        parts.append(_Late)
    return type("ProcessEngine", tuple(parts) or (ProcessEngine,), {})
