"""The thread of a request: blocking calls of llama.cpp, chunk by chunk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from gateway.sdk import EngineError, EngineOutput, EngineUnavailable, GatewayError, InvalidRequest
from gateway_llamacpp.chunks import ErrorReply, decode_chunk
from gateway_llamacpp.completion import LlamaCppRequest
from gateway_llamacpp.generation import GenerationState
from gateway_llamacpp.streams import RunningRequest


class NativeServer(Protocol):
    """The used part of `xllamacpp.Server`."""

    @property
    def listening_address(self) -> str: ...

    def handle_completions(self, body: bytes, callback: Callable[[bytes], bool]) -> object:
        """Blocks until the completion has ended. If the callback returns True, the completion is aborted."""
        ...

    def handle_metrics(self) -> str | bytes:
        """Blocks until llama.cpp's loop has answered, which may take as long as one batch of a prompt. Returns the
        metrics in Prometheus' text format, or an error as JSON."""
        ...

    def handle_embeddings(self, body: bytes) -> str | bytes:
        """Blocks until all vectors are made. Returns them, or an error, as JSON."""
        ...

    def handle_rerank(self, body: bytes) -> str | bytes:
        """Blocks until all scores are made. Returns them, or an error, as JSON. Ends the process if a query and its
        document have no token together."""
        ...


class Worker:
    """Runs one completion and writes to its stream. `run` is the thread's function."""

    def __init__(
        self,
        server: NativeServer,
        completion: LlamaCppRequest,
        generation: GenerationState,
        stream: RunningRequest,
    ) -> None:
        self._server = server
        self._completion = completion
        self._generation = generation
        self._stream = stream
        self._before = 0
        self._until: int | None = None
        self._finished = False
        self._failure: Exception | None = None
        self._head: EngineOutput | None = EngineOutput(prompt_tokens=completion.length)
        """Metadata of the first output."""

    def run(self) -> None:
        """Generate. Never raises. Ends the stream last."""
        try:
            opening = self._completion.opening()
            if opening is not None:
                body, self._until = opening
                self._call(body)
                self._until = None
            if not (self._finished or self._failure or self._has_no_reader()):
                self._before = self._generation.count
                self._call(self._completion.rest(self._generation.tokens))
            if not (self._finished or self._failure or self._has_no_reader()):
                self._failure = EngineUnavailable("llama.cpp ended a generation without a word.")
        except Exception as error:  # any exception of the native side must reach the reader
            self._failure = EngineError(f"llama.cpp failed: {error}")
        self._stream.end(self._failure)

    def _call(self, body: dict[str, Any]) -> None:
        self._server.handle_completions(msgspec.json.encode(body), self._chunk)

    def _has_no_reader(self) -> bool:
        """Whether there is no reader: it left, or the interpreter is shutting down."""
        return self._stream.aborted or not threading.main_thread().is_alive()

    def _chunk(self, data: bytes) -> bool:
        """llama.cpp's callback. Returning True aborts the completion."""
        try:
            return self._has_no_reader() or self._read(data)
        except Exception as error:  # an exception must not unwind through llama.cpp's frames
            self._failure = EngineError(f"llama.cpp's answer could not be read: {error}")
            return True

    def _read(self, data: bytes) -> bool:
        chunk = decode_chunk(data)
        if chunk.error is not None:
            self._failure = translated(chunk.error)
            return True
        if chunk.prompt_progress is not None:
            if self._head is not None:
                self._head.cached_tokens = chunk.prompt_progress.cache
            return False
        if chunk.details is None:
            return False
        output = self._generation.feed(chunk.details, before=self._before)
        if output is not None:
            if self._head is not None:
                output.prompt_tokens = self._head.prompt_tokens
                output.cached_tokens = self._head.cached_tokens
                self._head = None
            self._stream.put(output)
            if output.finish_reason is not None:
                self._finished = True
                return True
        return self._until is not None and self._generation.count >= self._until


def translated(failure: ErrorReply) -> GatewayError:
    """The gateway error for llama.cpp's error."""
    if failure.type == "exceed_context_size_error":
        return InvalidRequest(failure.message, param="input", code="context_length_exceeded")
    if 400 <= failure.code < 500:
        param = "grammar" if "grammar" in failure.message else ""
        return InvalidRequest(f"llama.cpp refuses the request: {failure.message}", param=param)
    if failure.code == 503:
        return EngineUnavailable(f"llama.cpp is not available: {failure.message}")
    return EngineError(f"llama.cpp failed: {failure.message}")
