"""Answers that consist of choices, which are generated concurrently: Chat Completions, Completions, and plugins'
APIs."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from gateway.answers.answer import Output
from gateway.answers.run_scope import RunScope
from gateway.answers.server_tool_loop import ServerToolLoop, ToolAnswerWriter
from gateway.answers.timings import AnswerTimes, answer_times
from gateway.base.errors import GatewayError
from gateway.generation.generation import Generation
from gateway.generation.generator import Generator
from gateway.generation.sinks import ByteSink, HeldSink, SharedSink
from gateway.generation.usage import total
from gateway.generation.writers import Sink
from gateway.models.served_model import ServedModel
from gateway.wire.response import Usage


class ChoiceWriter(ToolAnswerWriter, Protocol):
    """Writes one choice."""

    @property
    def cut_off(self) -> bool:
        """Whether a limit ended the choice."""
        ...

    def finish(self, generator: Generator) -> bytes:
        """End the choice, which `generator` generated. Returns its last bytes."""
        ...


class Choice:
    """One choice of an answer: its generations, and the tool calls that the gateway runs between them."""

    def __init__(
        self,
        generator: Generator,
        *,
        together: bool = False,
        max_turns: int | None = None,
        max_uses: Mapping[str, int] = {},
    ) -> None:
        """`together`: see `Generator.run`. For `max_turns` and `max_uses` see `ServerToolLoop.run`."""
        self.generator = generator
        self.writer: ChoiceWriter
        """Set by `begin`."""
        self.tools: ServerToolLoop | None = None
        """Runs tool calls between generations. None if the gateway offers no tools."""
        self._first: Generation
        self._together = together
        self._max_turns = max_turns
        self._max_uses = max_uses

    def begin(
        self, first: Generation, writer: ChoiceWriter, tools: ServerToolLoop | None = None
    ) -> None:
        """Set the `first` generation, which the engine has accepted, and the writer of the choice."""
        self._first, self.writer, self.tools = first, writer, tools

    def run(self, sink: ByteSink) -> Awaitable[bytes]:
        """Generate the choice, writing to `sink`. Returns the last part of its output. Raises `GatewayError`."""
        if self.tools is not None:
            return self.tools.run(
                self._first,
                self.writer,
                sink,
                max_turns=self._max_turns,
                max_uses=self._max_uses,
            )
        return self.generator.run(self._first, self.writer, sink, together=self._together)


class ChoicesOutput(Output[bytes]):
    """The output of an answer that consists of choices."""

    choices: Sequence[Choice]
    """Set by `prepare`."""
    stores = False
    """Whether the answer is stored before its end is sent."""

    def __init__(self, model: ServedModel, scope: RunScope) -> None:
        super().__init__()
        self.model = model
        self.choices = ()
        self._scope = scope
        self._error: GatewayError | None = None
        self._last = b""
        """Output that was written but not sent when the answer ended."""

    def take(self, choices: Sequence[Choice]) -> None:
        """Set the choices of a prepared answer."""
        self.choices = choices
        for choice in choices:
            choice.generator.stats = self._scope.stats

    @property
    def began(self) -> bool:
        return any(choice.generator.began for choice in self.choices)

    @property
    def holds(self) -> bool:
        return self.model.may_refuse(None)

    def usage(self) -> Usage:
        counts = [choice.generator.tokens for choice in self.choices]
        return (counts[0] if len(counts) == 1 else total(counts)).usage()

    def times(self) -> AnswerTimes:
        """Return how long the answer took. Called after all choices are generated."""
        return answer_times(self._scope.stats, self.usage())

    def start(self) -> bytes:
        return b""

    async def make(self, sink: Sink[bytes]) -> bytes:
        if len(self.choices) > 1:
            await self._make_all(sink)
            return b""
        choice = self.choices[0]
        last = await choice.run(sink)
        end = choice.writer.finish(choice.generator)
        if last and self.stores:
            await sink(last)  # send it now: the end is only sent if the answer can be stored
            return end
        return last + end

    async def _make_all(self, sink: Sink[bytes]) -> None:
        """Generate several choices. Their output is merged in the order in which it arrives."""
        if isinstance(sink, HeldSink):
            sink, holds = sink.below, True  # each choice has a held sink of its own
        else:
            holds = False
        shared = SharedSink(sink)

        async def make(choice: Choice) -> None:
            last = await choice.run(HeldSink(shared) if holds else shared)
            if rest := last + choice.writer.finish(choice.generator):
                await shared(rest)

        try:
            async with asyncio.TaskGroup() as group:
                for choice in self.choices:
                    group.create_task(make(choice))
        except BaseExceptionGroup as failures:
            # The first failure cancelled the other choices; the group does not report their cancellations.
            raise failures.exceptions[0] from None
        finally:
            self._last = shared.take()

    def finish(self, rest: bytes) -> bytes:
        self._last = rest
        cut_off = any(choice.writer.cut_off for choice in self.choices)
        self.status = "incomplete" if cut_off else "completed"
        return b""

    def fail(self, error: GatewayError) -> bytes:
        self._error = error
        self.status = "cancelled" if self._scope.revoked else "failed"
        return b""

    def cancel(self) -> bytes:
        self.status = "cancelled"
        return b""

    def terminal(self) -> bytes:
        return self._last + (self.trailer() if self._error is None else self.failed(self._error))

    @abstractmethod
    def trailer(self) -> bytes:
        """Return the end of the answer, after its choices."""

    @abstractmethod
    def failed(self, error: GatewayError) -> bytes:
        """Return the end of an answer that failed after a part of it was sent."""

    def join(self, first: bytes, second: bytes) -> bytes:
        return first + second
