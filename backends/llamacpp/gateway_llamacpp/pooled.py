"""What the engines of llama.cpp share that embed or rerank: slots, threads, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec

from gateway.sdk import EngineError, EngineUnavailable, ModelInfo
from gateway_llamacpp.config import LlamaCppConfig
from gateway_llamacpp.slots import Slots
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.worker import NativeServer

T = TypeVar("T")
Job = Callable[[NativeServer], T]
"""Blocks until llama.cpp has computed one input."""


class PooledEngine:
    """As many inputs run concurrently as there are slots, each in its own thread, and llama.cpp batches them. An aborted
    request ends when its inputs in slots are done."""

    def __init__(
        self,
        server: NativeServer,
        config: LlamaCppConfig,
        *,
        info: ModelInfo,
        tokenizer: LlamaCppTokenizer,
        clean_up: Callable[[], None],
    ) -> None:
        self._server: NativeServer | None = server
        self.info = info
        self.tokenizer = tokenizer
        self._clean_up = clean_up
        self._n_parallel = config.n_parallel
        self._slots = Slots(config.n_parallel)
        self._threads = ThreadPoolExecutor(config.n_parallel, "llamacpp-pooled")
        self._loop = asyncio.get_running_loop()

    @property
    def last_priority(self) -> int:
        """See `PrioritizingEngine`."""
        return 2**31 - 1

    async def health(self) -> None:
        """Raise `EngineUnavailable` once the engine is closed."""
        self._alive()

    async def close(self) -> None:
        """Reject waiting inputs, wait for running ones, and free the model."""
        server, self._server = self._server, None
        if server is None:
            return
        self._slots.close(_shutting_down())
        await asyncio.to_thread(self._threads.shutdown)
        self.tokenizer.close()
        # Drop the last reference in a thread, because the destructor waits for llama.cpp's loop.
        holder = [server]
        del server
        await asyncio.to_thread(holder.clear)
        self._clean_up()

    async def _run_all(self, jobs: Sequence[Job[T]], priority: int) -> list[T]:
        """The results of all jobs. Each waits for a slot, by priority (lowest first), then in order of arrival."""
        results: dict[int, T] = {}
        todo = iter(enumerate(jobs))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._n_parallel, len(jobs))):
                    group.create_task(self._work(todo, results, priority))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [results[index] for index in range(len(jobs))]

    async def _work(
        self, todo: Iterator[tuple[int, Job[T]]], results: dict[int, T], priority: int
    ) -> None:
        for index, job in todo:
            await self._slots.acquire(priority)
            try:
                running = self._threads.submit(job, self._alive())
            except BaseException:
                self._slots.release()
                raise
            running.add_done_callback(self._ended)
            results[index] = await asyncio.wrap_future(running)

    def _ended(self, running: Future[T]) -> None:
        """Runs in the input's thread, or in the loop's if the input was cancelled before it started."""
        try:
            self._loop.call_soon_threadsafe(self._slots.release)
        except RuntimeError:
            return  # the loop is closed, so nothing waits for a slot

    def _alive(self) -> NativeServer:
        if self._server is None:
            raise _shutting_down()
        return self._server


def ask(call: Callable[[bytes], str | bytes], body: bytes, kind: type[T]) -> T:
    """The decoded answer of llama.cpp to `body`. Blocks until it is made. Raises `EngineError`."""
    try:
        answer = call(body)
    except Exception as error:  # any exception of the native side must reach the reader
        raise EngineError(f"llama.cpp failed: {error}") from error
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise EngineError(f"llama.cpp's answer could not be read: {error}") from error


def _shutting_down() -> EngineUnavailable:
    return EngineUnavailable("The engine is shutting down.")
