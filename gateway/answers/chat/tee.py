"""Streaming a choice and collecting it at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.answers.chat.chunks import ChunkWriter
from gateway.answers.chat.message import ChoiceCollector
from gateway.plugins.protocols import TokenLogprob
from gateway.wire.chat import FinishReason, UrlAnnotation


class TeeWriter:
    """Writes chunks, and also collects the message. Implements `gateway.answers.chat.assembler.ChoiceWriter`."""

    def __init__(self, chunks: ChunkWriter, message: ChoiceCollector) -> None:
        self._chunks = chunks
        self._message = message

    def role(self) -> bytes:
        return self._chunks.role()

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        self._message.text(text, logprobs)
        return self._chunks.text(text, logprobs)

    def reasoning(self, text: str) -> bytes:
        self._message.reasoning(text)
        return self._chunks.reasoning(text)

    def refusal(self, text: str) -> bytes:
        self._message.refusal(text)
        return self._chunks.refusal(text)

    def call(self, index: int, call_id: str, name: str, *, custom: bool) -> bytes:
        self._message.call(index, call_id, name, custom=custom)
        return self._chunks.call(index, call_id, name, custom=custom)

    def call_input(self, index: int, text: str, *, custom: bool) -> bytes:
        self._message.call_input(index, text, custom=custom)
        return self._chunks.call_input(index, text, custom=custom)

    def annotate(self, annotations: Sequence[UrlAnnotation]) -> bytes:
        self._message.annotate(annotations)
        return self._chunks.annotate(annotations)

    def finish(self, reason: FinishReason, stop_reason: str | int | None) -> bytes:
        self._message.finish(reason, stop_reason)
        return self._chunks.finish(reason, stop_reason)
