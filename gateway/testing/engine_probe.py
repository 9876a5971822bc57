"""What the checks of an engine share: requests to it, and how they say what does not hold. Needs no pytest."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.constraints import Constraint
from gateway.errors import InvalidRequest
from gateway.protocols import (
    Capability,
    ChatPrompt,
    Engine,
    EngineRequest,
    Prompt,
    Sampling,
    SpeaksFormat,
    TokensPrompt,
)
from gateway.testing.generating import generate

PROMPT = (
    "Please repeat after me: the quick brown fox jumps over the lazy dog, then naps in warm "
    "sunshine, and dreams of chasing seven rabbits through an endless summer meadow."
)
_numbers = itertools.count(1)


class CheckFailed(AssertionError):
    """A promise does not hold; the text says which, and what was seen."""


class NotOffered(Exception):
    """The engine does not claim what the check is about; the text says what."""


def require(holds: object, seen: str) -> None:
    """Raise `CheckFailed` unless `holds`."""
    if not holds:
        raise CheckFailed(seen)


class Probe:
    """An engine under test. `prompt` is something that it answers with at least 24 tokens, if it may go on after its
    end token; `bad_token_ids` are ids outside its vocabulary; `time_limit` is in seconds, for any single step.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        prompt: str = PROMPT,
        bad_token_ids: Sequence[int] = (-1, 2**40),
        time_limit: float = 60.0,
    ) -> None:
        self.engine = engine
        self.prompt = prompt
        self.bad_token_ids = bad_token_ids
        self.time_limit = time_limit

    def request(
        self,
        *,
        prompt: Prompt | None = None,
        constraint: Constraint | None = None,
        adapter: str | None = None,
        **sampling: Any,
    ) -> EngineRequest:
        """A greedy request for 24 tokens, with a fresh id. Raises `NotOffered` for an engine that only embeds."""
        if not (self.has("tokens") or self.has("messages")):
            raise NotOffered("the engine only embeds")
        # The APIs that engines at message level speak have no `ignore_eos`.
        wanted = {
            "max_tokens": 24,
            "temperature": 0.0,
            "ignore_eos": self.has("tokens"),
            **sampling,
        }
        return EngineRequest(
            request_id=f"contract-{next(_numbers)}",
            prompt=prompt or self.prompt_for(),
            sampling=Sampling(**wanted),
            constraint=constraint,
            adapter=adapter,
        )

    def prompt_for(self) -> Prompt:
        """`prompt` in the form that the engine takes."""
        if self.has("tokens"):
            assert self.engine.tokenizer is not None
            return TokensPrompt(token_ids=self.engine.tokenizer.encode(self.prompt))
        return ChatPrompt(messages=[{"role": "user", "content": self.prompt}])

    def has(self, capability: Capability) -> bool:
        """Whether the engine claims it."""
        return capability in self.engine.capabilities

    def needs(self, capability: Capability) -> None:
        """Raise `NotOffered` for what the engine does not claim."""
        if not self.has(capability):
            raise NotOffered(f"the engine does not claim {capability}")

    def needs_a_model(self) -> None:
        """Raise `NotOffered` for an engine that writes its outputs itself: it samples nothing."""
        if isinstance(self.engine, SpeaksFormat):
            raise NotOffered("the engine writes its outputs itself, and samples nothing")

    async def accepted(self, request: EngineRequest, what: str) -> None:
        """Raise `NotOffered` for a request that the engine refuses."""
        try:
            await self.engine.check(request)
        except InvalidRequest as error:
            raise NotOffered(f"{what}: {error.message}") from error

    async def refused(self, request: EngineRequest, what: str) -> None:
        """Both doors refuse the request, and the engine lives."""
        doors: dict[str, Callable[[], Awaitable[object]]] = {
            "check": lambda: self.engine.check(request),
            "generate": lambda: generate(self.engine, request),
        }
        for door, attempt in doors.items():
            try:
                await attempt()
            except InvalidRequest:
                continue
            raise CheckFailed(f"{door} took {what}")
        await self.engine.health()

    @property
    def long(self) -> int:
        """As many tokens as there is room for, within reason."""
        return min(4096, (self.engine.info.max_model_len or 4096) // 2)
