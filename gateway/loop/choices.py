"""An answer of one or several choices, which are made at once: Chat Completions, Completions, and other APIs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from gateway.loop.generation import Generator
from gateway.loop.run_scope import RunScope
from gateway.loop.usage import ExpectedTokens, total
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.wire.chat import (
    CompletionTokensDetails,
    CompletionUsage,
    PromptTokensDetails,
)
from gateway.wire.response import ResponseStatus, Usage

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

    `run` never raises but for the cancellation of its task: whatever fails ends all choices and is `scope.error`.
    """

    def __init__(
        self,
        model: ServedModel,
        services: Services,
        choices: Sequence[Choice],
        expected: ExpectedTokens,
        *,
        api: str,
    ) -> None:
        """Takes a place in the model's queue: raises `RateLimited`. `expected`: what all choices may use. `api` is the short
        name of the API."""
        self.services = services
        self.scope = RunScope(services, name="a completion", api=api)
        self.scope.reserve(model, expected)
        for choice in choices:
            choice.generator.stats = self.scope.stats
        self._model = model
        self._choices = choices

    def usage(self) -> Usage:
        """What all choices have used so far."""
        return total(choice.generator.tokens for choice in self._choices).usage()

    async def run(self, sink: ByteSink) -> bytes:
        """Make all choices, handing to `sink` what is ready; returns what is then left to be sent."""
        scope = self.scope
        rest = b""
        status: ResponseStatus = "cancelled"
        try:
            with scope.registered():
                with scope.stoppable():
                    async with scope.turn:
                        if len(self._choices) == 1:
                            rest = await self._choices[0].run(sink)
                        else:
                            await self._all(sink)
                status = "completed" if scope.error is None else "failed"
                if status == "completed" and any(choice.cut_off for choice in self._choices):
                    status = "incomplete"
                if scope.error is None:
                    await self.keep()
            if scope.error is None:
                return rest
            status = "failed"
            return b""
        finally:
            scope.finish(status, self.usage())
            self.notify_plugins(status)

    async def keep(self) -> None:
        """Store the answer, which is made, before its end is sent; where that fails, it is `scope.error`."""
        return

    def notify_plugins(self, status: ResponseStatus) -> None:
        """Tell the plugins that the answer has ended, however it did."""
        return

    async def _all(self, sink: ByteSink) -> None:
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
