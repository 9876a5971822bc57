"""The engine of a model that embeds: texts in, vectors out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from gateway.engines.vectors import shortened, vector_of_json
from gateway.errors import EngineError, EngineUnavailable, InvalidRequest, Unsupported
from gateway.protocols import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineOutput,
    EngineRequest,
    ModelInfo,
)
from gateway_llamacpp.chunks import Failure
from gateway_llamacpp.config import LlamaCppConfig
from gateway_llamacpp.slots import Slots
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary
from gateway_llamacpp.worker import NativeServer, translated

_CAPABILITIES: frozenset[Capability] = frozenset({"embeddings"})


class _Vector(msgspec.Struct):
    embedding: str


class _Reply(msgspec.Struct):
    data: list[_Vector] = []
    error: Failure | None = None


_decode = msgspec.json.Decoder(_Reply).decode


class LlamaCppEmbedder:
    """llama.cpp in this process, for vectors. Satisfies `gateway.protocols.EmbeddingEngine`, and `Engine` without a word.

    As many inputs run at once as there are slots, each in a thread of its own, and llama.cpp computes them together. An
    aborted request ends with the inputs that are in a slot.
    """

    def __init__(
        self,
        server: NativeServer,
        config: LlamaCppConfig,
        *,
        info: ModelInfo,
        embedding: EmbeddingInfo,
        vocabulary: Vocabulary,
        tokenizer: LlamaCppTokenizer,
        clean_up: Callable[[], None],
    ) -> None:
        self._server: NativeServer | None = server
        self._info = info
        self._embedding = embedding
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer
        self._clean_up = clean_up
        self._n_parallel = config.n_parallel
        self._slots = Slots(config.n_parallel)
        self._threads = ThreadPoolExecutor(config.n_parallel, "llamacpp-embedding")
        self._loop = asyncio.get_running_loop()

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return _CAPABILITIES

    @property
    def tokenizer(self) -> LlamaCppTokenizer:
        return self._tokenizer

    @property
    def embedding(self) -> EmbeddingInfo:
        return self._embedding

    @property
    def free_slots(self) -> int:
        """Slots that no input holds."""
        return self._slots.free

    async def health(self) -> None:
        """Raise `EngineUnavailable` once the engine is closed."""
        self._alive()

    async def check(self, request: EngineRequest) -> None:
        raise _only_embeds()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        raise _only_embeds()
        yield EngineOutput()

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """All vectors. Inputs wait for a slot each, lowest priority first, then oldest first."""
        self._alive()
        inputs = [self._checked(request, index) for index in range(len(request.inputs))]
        vectors: list[bytes] = [b""] * len(inputs)
        todo = iter(enumerate(inputs))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._n_parallel, len(inputs))):
                    group.create_task(self._work(todo, vectors, request.priority))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return EmbeddingResult(
            vectors=[
                shortened(vector_of_json(_vector(reply)), request.dimensions) for reply in vectors
            ],
            prompt_tokens=sum(map(len, inputs)),
        )

    async def close(self) -> None:
        """Refuse what waits, wait for what is in a slot, and free the model."""
        server, self._server = self._server, None
        if server is None:
            return
        self._slots.close(_shutting_down())
        await asyncio.to_thread(self._threads.shutdown)
        self._tokenizer.close()
        # The last reference goes in a thread: the destructor waits for llama.cpp's loop.
        holder = [server]
        del server
        await asyncio.to_thread(holder.clear)
        self._clean_up()

    async def _work(
        self, todo: Iterator[tuple[int, list[int]]], replies: list[bytes], priority: int
    ) -> None:
        for index, ids in todo:
            await self._slots.acquire(priority)
            body = {"input": [ids], "encoding_format": "base64"}
            try:
                running = self._threads.submit(_call, self._alive(), msgspec.json.encode(body))
            except BaseException:
                self._slots.release()
                raise
            running.add_done_callback(self._ended)
            replies[index] = await asyncio.wrap_future(running)

    def _ended(self, running: Future[bytes]) -> None:
        """In the input's thread, or, for one that was cancelled before it began, in the loop's."""
        try:
            self._loop.call_soon_threadsafe(self._slots.release)
        except RuntimeError:
            return  # the loop is closed: nobody waits for a slot

    def _checked(self, request: EmbeddingRequest, index: int) -> list[int]:
        ids = request.inputs[index]
        param = "input" if len(request.inputs) == 1 else f"input[{index}]"
        if request.adapter is not None:
            raise InvalidRequest("This model has no adapters.", param="model")
        if isinstance(ids, str):
            raise Unsupported("This engine takes inputs as tokens.", param=param)
        size, most = len(self._vocabulary), self._embedding.max_input_tokens
        if most is not None and len(ids) > most:
            raise InvalidRequest(
                f"The input has {len(ids)} tokens, and the model embeds {most} at most. Shorten it.",
                param=param,
                code="context_length_exceeded",
            )
        wrong = next((token for token in ids if not 0 <= token < size), None)
        if wrong is not None:
            raise InvalidRequest(
                f"Token id {wrong} is outside the model's vocabulary of {size} tokens.", param=param
            )
        return list(ids)

    def _alive(self) -> NativeServer:
        if self._server is None:
            raise _shutting_down()
        return self._server


def dimensions_of(server: NativeServer) -> int:
    """How many numbers a vector has, by making one; which shows besides that llama.cpp's loop has begun.

    Raises `GatewayError` for a model that makes none.
    """
    return len(
        vector_of_json(_vector(_call(server, b'{"input":[[0]],"encoding_format":"base64"}')))
    )


def _call(server: NativeServer, body: bytes) -> bytes:
    try:
        reply: str | bytes = server.handle_embeddings(body)
    except Exception as error:  # whatever the native side throws must reach the reader
        raise EngineError(f"llama.cpp failed: {error}") from error
    return reply.encode() if isinstance(reply, str) else reply


def _vector(reply: bytes) -> str:
    try:
        read = _decode(reply)
    except msgspec.DecodeError as error:
        raise EngineError(f"llama.cpp's answer could not be read: {error}") from error
    if read.error is not None:
        raise translated(read.error)
    if len(read.data) != 1:
        raise EngineError("llama.cpp gave no vector.")
    return read.data[0].embedding


def _only_embeds() -> Unsupported:
    return Unsupported("This model only embeds. Use /v1/embeddings.", param="model")


def _shutting_down() -> EngineUnavailable:
    return EngineUnavailable("The engine is shutting down.")
