"""An answer of one or several choices, which are made at once: Chat Completions, Completions, and other fronts."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from gateway.errors import GatewayError, too_long
from gateway.loop.generation import Generator
from gateway.loop.usage import total
from gateway.serving.served import ServedModel, Services
from gateway.wire.chat import (
    CompletionTokensDetails,
    CompletionUsage,
    PromptTokensDetails,
)
from gateway.wire.response import ResponseStatus, Usage

logger = logging.getLogger("gateway.loop.choices")

ByteSink: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Takes what is ready at once; awaiting it is the back-pressure."""


class Choice(Protocol):
    """One choice of an answer."""

    generator: Generator

    @property
    def cut_off(self) -> bool:
        """Whether a limit ended it."""
        ...

    async def run(self, sink: ByteSink) -> bytes:
        """Make it; returns the last that is to be sent of it. Raises `GatewayError` where it fails."""
        ...


class AnswerRun:
    """One answer, from its prepared choices to its end.

    `run` never raises but for the cancellation of its task: whatever fails ends all choices and is `error`.
    """

    def __init__(self, model: ServedModel, services: Services, choices: Sequence[Choice]) -> None:
        """Takes a place in the model's queue: raises `RateLimited`."""
        self.services = services
        self.error: GatewayError | None = None
        """Why the answer failed, once it has."""
        self._model = model
        self._choices = choices
        self._reservation = model.admission.reserve()
        self._task: asyncio.Task[object] | None = None
        self._stopped_by: GatewayError | None = None

    def abandon(self) -> None:
        """Give back the place in the queue, if `run` was never called."""
        self._reservation.cancel()

    def stop(self, error: GatewayError) -> None:
        """End the run from outside: it fails with `error`."""
        if self._task is not None and self._stopped_by is None:
            self._stopped_by = error
            self._task.cancel()

    def usage(self) -> Usage:
        """What all choices have used so far."""
        return total(choice.generator.tokens for choice in self._choices).usage()

    async def run(self, sink: ByteSink) -> bytes:
        """Make all choices, handing to `sink` what is ready; returns what is then left to be sent."""
        self._task = asyncio.current_task()
        self.services.runs.add(self)
        status: ResponseStatus = "cancelled"
        try:
            rest = await self._until_end(sink)
            status = "failed" if self.error is not None else "completed"
            if status == "completed" and any(choice.cut_off for choice in self._choices):
                status = "incomplete"
            if self.error is None:
                self._task = None  # from here on there is nothing to stop
                await self.keep()
            if self.error is None:
                return rest
            status = "failed"
            return b""
        finally:
            self._task = None
            self.abandon()
            self.services.runs.discard(self)
            self.services.metrics.run_finished(self._model.name, status, self.usage())
            self.tell(status)

    async def keep(self) -> None:
        """Store the answer, which is made, before its end is sent; where that fails, it is `error`."""
        return

    def tell(self, status: ResponseStatus) -> None:
        """Tell the plugins that the answer has ended, however it did."""
        return

    async def _until_end(self, sink: ByteSink) -> bytes:
        deadline = asyncio.get_running_loop().call_later(
            self.services.settings.request_timeout, self._expire
        )
        try:
            async with self._reservation:
                if len(self._choices) == 1:
                    return await self._choices[0].run(sink)
                return await self._all(sink)
        except GatewayError as failure:
            self.error = failure
        except asyncio.CancelledError:
            if self._stopped_by is None:
                raise
            if self._task is not None:
                self._task.uncancel()
            self.error = self._stopped_by
        except Exception:
            # A plugin or the gateway itself is at fault; the client is told that, the log is told what.
            logger.exception("a completion failed")
            self.error = GatewayError("The server had an internal error on this request.")
        finally:
            deadline.cancel()
        return b""

    def _expire(self) -> None:
        self.stop(too_long(self.services.settings.request_timeout))

    async def _all(self, sink: ByteSink) -> bytes:
        """Several choices: what they send is merged as it comes."""
        lock = asyncio.Lock()

        async def in_turn(data: bytes) -> None:
            async with lock:
                await sink(data)

        async def make(choice: Choice) -> None:
            if rest := await choice.run(in_turn):
                await in_turn(rest)

        try:
            async with asyncio.TaskGroup() as group:
                for choice in self._choices:
                    group.create_task(make(choice))
        except BaseExceptionGroup as failures:
            # The first failure ended the others, whose cancellations the group has swallowed.
            raise failures.exceptions[0] from None
        return b""


class ChoicesRun(AnswerRun, ABC):
    """An answer of Chat Completions or Completions."""

    @abstractmethod
    def trailer(self) -> bytes:
        """What a stream ends with, after its last choice."""

    @abstractmethod
    def answer(self) -> object:
        """The whole answer, as a wire Struct, once `run` has ended well."""


def completion_usage(usage: Usage) -> CompletionUsage:
    """Usage in the words of Chat Completions."""
    return CompletionUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptTokensDetails(
            cached_tokens=usage.input_tokens_details.cached_tokens
        ),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens
        ),
    )
