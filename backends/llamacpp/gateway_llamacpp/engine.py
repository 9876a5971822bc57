"""The engine: requests in, outputs out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable

from gateway.errors import EngineError, EngineUnavailable
from gateway.protocols import Capability, EngineOutput, EngineRequest, ModelInfo
from gateway_llamacpp.completion import Completion, CompletionBuilder
from gateway_llamacpp.generation import Generation
from gateway_llamacpp.slots import Slots
from gateway_llamacpp.streams import Mailbox, Stream
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary
from gateway_llamacpp.worker import NativeServer, Worker

_CAPABILITIES: frozenset[Capability] = frozenset(
    {"tokens", "logprobs", "json_schema", "json_object", "regex", "gbnf", "structure", "triggered"}
)


class LlamaCppEngine:
    """llama.cpp in this process. Satisfies `gateway.protocols.Engine`; bound to the event loop that opened it.

    Each running request has a thread, which spends its life inside llama.cpp; there are as many as slots. The thread ends
    at the first chunk after the request was aborted: one decoding step, or one batch of a long prompt.
    """

    def __init__(
        self,
        server: NativeServer,
        *,
        info: ModelInfo,
        vocabulary: Vocabulary,
        tokenizer: LlamaCppTokenizer,
        builder: CompletionBuilder,
        n_parallel: int,
        clean_up: Callable[[], None],
    ) -> None:
        self._server: NativeServer | None = server
        self._info = info
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer
        self._builder = builder
        self._clean_up = clean_up
        self._slots = Slots(n_parallel)
        self._running: set[Stream] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self.mailbox = Mailbox(asyncio.get_running_loop(), self._stream_ended)

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return _CAPABILITIES | {"adapters"} if self._info.adapters else _CAPABILITIES

    @property
    def tokenizer(self) -> LlamaCppTokenizer:
        return self._tokenizer

    @property
    def free_slots(self) -> int:
        """Slots that no request holds."""
        return self._slots.free

    async def health(self) -> None:
        """Raise `EngineUnavailable` once the engine is closed."""
        self._alive()

    async def check(self, request: EngineRequest) -> None:
        """Refuse what `generate` would refuse."""
        self._alive()
        self._builder.build(request)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`. Waits for a slot where all are taken, lowest priority first, then oldest first."""
        completion = self._builder.build(request)
        self._alive()
        await self._slots.acquire(request.priority)
        stream = self._start(completion)
        try:
            while True:
                output = await stream.take()
                yield output
                if output.finish_reason is not None:
                    return
        finally:
            stream.aborted = True

    async def close(self) -> None:
        """Abort what runs (its readers get `EngineUnavailable`), wait for the threads, and free the model."""
        server, self._server = self._server, None
        if server is None:
            return
        self._slots.close(_shutting_down())
        for stream in self._running:
            stream.abandon(_shutting_down())
        await self._all_ended.wait()
        self._tokenizer.close()
        # The last reference goes in a thread: the destructor waits for llama.cpp's loop.
        holder = [server]
        del server
        await asyncio.to_thread(holder.clear)
        self._clean_up()

    def _alive(self) -> NativeServer:
        if self._server is None:
            raise _shutting_down()
        return self._server

    def _start(self, completion: Completion) -> Stream:
        stream = Stream(self.mailbox)
        try:
            generation = Generation(self._vocabulary, completion.sampling, limit=completion.limit)
            worker = Worker(self._alive(), completion, generation, stream)
            thread = threading.Thread(target=worker.run, name="llamacpp-request")
            thread.start()
        except EngineUnavailable:
            self._slots.release()
            raise
        except RuntimeError as error:  # the system gives no more threads
            self._slots.release()
            raise EngineError(f"No thread for the request: {error}.") from error
        self._running.add(stream)
        self._all_ended.clear()
        return stream

    def _stream_ended(self, stream: Stream) -> None:
        self._running.discard(stream)
        self._slots.release()
        if not self._running:
            self._all_ended.set()


def _shutting_down() -> EngineUnavailable:
    return EngineUnavailable("The engine is shutting down.")
