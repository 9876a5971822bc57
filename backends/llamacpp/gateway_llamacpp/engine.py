"""The generating engine of llama.cpp."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable

from gateway.sdk import (
    Capability,
    EngineError,
    EngineOutput,
    EngineRequest,
    EngineUnavailable,
    MetricSample,
    ModelInfo,
    TokensPrompt,
)
from gateway_llamacpp.compilation import Grammars
from gateway_llamacpp.completion import CompletionBuilder, LlamaCppRequest
from gateway_llamacpp.generation import GenerationState
from gateway_llamacpp.owned_slots import OwnedSlots
from gateway_llamacpp.samples import read_samples
from gateway_llamacpp.slots import Slots
from gateway_llamacpp.streams import Mailbox, RunningRequest
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary
from gateway_llamacpp.worker import NativeServer, Worker

_CAPABILITIES: frozenset[Capability] = frozenset(
    {"tokens", "logprobs", "json_schema", "json_object", "regex", "gbnf", "structure", "triggered"}
)


class LlamaCppEngine:
    """llama.cpp in process. Implements `gateway.sdk.Engine`; bound to the event loop that opened it.

    Each running request occupies a thread that blocks in llama.cpp; there are as many as slots. After an abort the
    thread ends at the next chunk: one decoding step, or one batch of a long prompt.
    """

    def __init__(
        self,
        server: NativeServer,
        *,
        info: ModelInfo,
        vocabulary: Vocabulary,
        tokenizer: LlamaCppTokenizer,
        builder: CompletionBuilder,
        grammars: Grammars,
        n_parallel: int,
        shared_memory: bool,
        media: frozenset[Capability] = frozenset(),
        clean_up: Callable[[], None],
    ) -> None:
        self._server: NativeServer | None = server
        self.info = info
        self._vocabulary = vocabulary
        self.tokenizer = tokenizer
        self._builder = builder
        self._grammars = grammars
        self._clean_up = clean_up
        adapters: frozenset[Capability] = frozenset({"adapters"} if info.adapters else ())
        self.capabilities = _CAPABILITIES | media | adapters
        self._slots = Slots(n_parallel)
        self._owned = OwnedSlots(n_parallel, shared_memory=shared_memory)
        self._running: set[RunningRequest] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._samples: list[MetricSample] = []
        self.mailbox = Mailbox(asyncio.get_running_loop(), self._stream_ended)

    @property
    def last_priority(self) -> int:
        """See `PrioritizingEngine`."""
        return 2**31 - 1

    async def health(self) -> None:
        """Raise `EngineUnavailable` once the engine is closed."""
        self._alive()

    async def check(self, request: EngineRequest) -> None:
        """Raise what `generate` would raise for this request."""
        self._alive()
        await self._build(request)

    def may_refuse(self, request: EngineRequest) -> bool:
        """Whether llama.cpp may refuse what `check` has accepted: grammars, which it reads at the generation."""
        return request.constraint is not None

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`. Waits for a free slot, by priority (lowest first), then in order of arrival."""
        completion = await self._build(request)
        self._alive()
        await self._slots.acquire(request.priority)
        slot: int | None = None
        if request.owner:
            slot, reusable = self._owned.take(request.owner, completion.prompt)
            completion = completion.in_slot(slot, reusable=reusable)
        stream = self._start(completion, slot)
        try:
            while True:
                output = await stream.take()
                yield output
                if output.finish_reason is not None:
                    return
        finally:
            stream.aborted = True

    def metrics(self) -> list[MetricSample]:
        """llama.cpp's own metrics, as of the last `refresh_metrics`."""
        return self._samples

    async def refresh_metrics(self) -> None:
        """Read llama.cpp's metrics."""
        server = self._server
        if server is not None:
            shown = await asyncio.to_thread(server.handle_metrics)
            self._samples = read_samples(shown if isinstance(shown, str) else shown.decode())

    async def close(self) -> None:
        """Abort running requests (their readers get `EngineUnavailable`), wait for the threads, and free the model."""
        server, self._server = self._server, None
        if server is None:
            return
        await self._grammars.close()
        self._slots.close(_shutting_down())
        for stream in self._running:
            stream.abandon(_shutting_down())
        await self._all_ended.wait()
        self.tokenizer.close()
        # Drop the last reference in a thread, because the destructor waits for llama.cpp's loop.
        holder = [server]
        del server
        await asyncio.to_thread(holder.clear)
        self._clean_up()

    async def count(self, prompt: TokensPrompt) -> int:
        """The length of `prompt` in tokens."""
        self._alive()
        if not prompt.media:
            return len(prompt.token_ids)
        return await asyncio.to_thread(self._builder.length, prompt)

    async def _build(self, request: EngineRequest) -> LlamaCppRequest:
        if isinstance(request.prompt, TokensPrompt) and request.prompt.media:
            # Counting asks llama.cpp, which decodes the media.
            completion = await asyncio.to_thread(self._builder.build, request)
        else:
            completion = self._builder.build(request)
        if request.constraint is None:
            return completion
        # Everything else is valid. Compiling a grammar may take long.
        grammar = await self._grammars.of(request.constraint, request.owner)
        return completion.constrained(grammar, self._grammars.bias(request.constraint))

    def _alive(self) -> NativeServer:
        if self._server is None:
            raise _shutting_down()
        return self._server

    def _start(self, completion: LlamaCppRequest, slot: int | None) -> RunningRequest:
        stream = RunningRequest(self.mailbox)
        stream.slot = slot
        try:
            generation = GenerationState(
                self._vocabulary, completion.sampling, limit=completion.limit
            )
            worker = Worker(self._alive(), completion, generation, stream)
            thread = threading.Thread(target=worker.run, name="llamacpp-request")
            thread.start()
        except EngineUnavailable:
            self._release(stream)
            raise
        except RuntimeError as error:  # the system cannot start more threads
            self._release(stream)
            raise EngineError(f"No thread for the request: {error}.") from error
        self._running.add(stream)
        self._all_ended.clear()
        return stream

    def _release(self, stream: RunningRequest) -> None:
        if stream.slot is not None:
            self._owned.release(stream.slot)
        self._slots.release()

    def _stream_ended(self, stream: RunningRequest) -> None:
        self._running.discard(stream)
        self._release(stream)
        if not self._running:
            self._all_ended.set()


def _shutting_down() -> EngineUnavailable:
    return EngineUnavailable("The engine is shutting down.")
