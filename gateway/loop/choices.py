"""An answer of one or several choices, which are made at once: Chat Completions, Completions, and other APIs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from gateway.errors import RateLimited
from gateway.loop.attempts import Attempts
from gateway.loop.generator import Generator
from gateway.loop.run_scope import RunScope
from gateway.loop.sinks import HeldSink, SharedSink
from gateway.loop.timings import AnswerTimes, answer_times
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


class GeneratedChoice(Protocol):
    """One choice of an answer."""

    generator: Generator

    @property
    def cut_off(self) -> bool:
        """Whether a limit ended it."""
        ...

    async def run(self, sink: ByteSink) -> bytes:
        """Make it; returns the last that is to be sent of it. Raises `GatewayError` where it fails."""
        ...


PlanT = TypeVar("PlanT")


class AnswerRun(ABC, Generic[PlanT]):
    """One answer, from its first plan to its end.

    If the model of the plan does not answer, the answer is begun anew with the next plan of its attempts.

    `run` never raises but for the cancellation of its task: whatever fails ends all choices and is `scope.error`.
    """

    model: ServedModel
    """The model that answers; it may change until something is sent."""

    def __init__(
        self, services: Services, plan: PlanT, attempts: Attempts[PlanT] | None, *, api: str
    ) -> None:
        """`attempts` has the models that are left. `api` is the short name of the API. Takes a place in the model's queue:
        raises `RateLimited` if it is full and no other model is left."""
        self.services = services
        self.scope = RunScope(services, name="a completion", api=api)
        self._attempts = attempts
        self._choices: Sequence[GeneratedChoice] = ()
        self._full: RateLimited | None = None
        """The error of a full queue, if another model is left."""
        self._unsent = b""
        """What choices had written and not yet sent when the answer failed."""
        self._begin(plan)

    @abstractmethod
    def take(self, plan: PlanT) -> tuple[ServedModel, Sequence[GeneratedChoice], ExpectedTokens]:
        """Begin the answer anew by `plan`. Returns its model, its choices, and what they all may use."""

    def _begin(self, plan: PlanT) -> None:
        self.model, self._choices, expected = self.take(plan)
        for choice in self._choices:
            choice.generator.stats = self.scope.stats
        self._full = None
        try:
            self.scope.reserve(self.model, expected)
        except RateLimited as error:
            if self._attempts is None or not self._attempts.more:
                raise
            self._full = error

    @property
    def may_change(self) -> bool:
        """Whether another model is left, which may answer as long as there is no output."""
        return self._attempts is not None and self._attempts.more

    def usage(self) -> Usage:
        """What all choices have used so far."""
        counts = [choice.generator.tokens for choice in self._choices]
        return (counts[0] if len(counts) == 1 else total(counts)).usage()

    def times(self) -> AnswerTimes:
        """How long it took, once all choices are made."""
        return answer_times(self.scope.stats, self.usage())

    async def run(self, sink: ByteSink) -> bytes:
        """Make all choices, handing to `sink` what is ready; returns what is then left to be sent, also if the answer has failed."""
        scope = self.scope
        rest = b""
        status: ResponseStatus = "cancelled"
        try:
            with scope.registered():
                with scope.stoppable():
                    rest = await self._answer(sink)
                status = "completed" if scope.error is None else "failed"
                if status == "completed" and any(choice.cut_off for choice in self._choices):
                    status = "incomplete"
                if scope.error is None:
                    await self.keep()
            if scope.error is None:
                return rest
            status = "cancelled" if scope.revoked else "failed"
            return self._unsent
        finally:
            scope.finish(status, self.usage())
            self.notify_plugins(status)

    async def _answer(self, sink: ByteSink) -> bytes:
        """Make all choices, with the first model that gives any output."""
        attempts = self._attempts
        while True:
            if attempts is None or not attempts.more:
                return await self._attempt(sink, holds=self.model.may_refuse(None))
            try:
                return await self._attempt(sink, holds=True)
            except Exception as error:
                began = any(choice.generator.began for choice in self._choices)
                if began or self.scope.denied:
                    raise
                attempts.check(error)
                if self._full is None:
                    self.scope.attempt_failed(error, self.usage())
                async with attempts:
                    self._begin(await attempts.after(error))

    async def _attempt(self, sink: ByteSink, *, holds: bool) -> bytes:
        """Make all choices with the model of the plan. `holds`: nothing is sent before the engine's first output."""
        if self._full is not None:
            raise self._full
        async with self.scope.turn:
            if len(self._choices) == 1:
                return await self._choices[0].run(HeldSink(sink) if holds else sink)
            await self._all(sink, holds=holds)
            return b""

    async def keep(self) -> None:
        """Store the answer, which is made, before its end is sent; where that fails, it is `scope.error`."""
        return

    def notify_plugins(self, status: ResponseStatus) -> None:
        """Tell the plugins that the answer has ended, however it did."""
        return

    async def _all(self, sink: ByteSink, *, holds: bool) -> None:
        """Several choices: what they send is merged as it comes."""
        shared = SharedSink(sink)

        async def make(choice: GeneratedChoice) -> None:
            if rest := await choice.run(HeldSink(shared) if holds else shared):
                await shared(rest)

        try:
            async with asyncio.TaskGroup() as group:
                for choice in self._choices:
                    group.create_task(make(choice))
        except BaseExceptionGroup as failures:
            # The first failure ended the others, whose cancellations the group has swallowed.
            raise failures.exceptions[0] from None
        finally:
            self._unsent = shared.take()


class ChoicesRun(AnswerRun[PlanT]):
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
