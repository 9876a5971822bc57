"""Helpers for the checks of an engine: creating requests and reporting failures. Does not need pytest."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.sdk import (
    Capability,
    ChatPrompt,
    Engine,
    EngineRequest,
    FormatAwareEngine,
    InvalidRequest,
    Prompt,
    Sampling,
    TokensPrompt,
)
from gateway.sdk.constraints import Constraint
from gateway_doctor.checks.generating import generate

PROMPT = (
    "Please repeat after me: the quick brown fox jumps over the lazy dog, then naps in warm "
    "sunshine, and dreams of chasing seven rabbits through an endless summer meadow."
)
_numbers = itertools.count(1)


class GuaranteeViolated(AssertionError):
    """A guarantee is violated. The text says which guarantee, and what was observed."""


class NotClaimed(Exception):
    """The engine does not claim the capability that the check tests. The text names the capability."""


def require(holds: object, seen: str) -> None:
    """Raise `GuaranteeViolated` unless `holds`."""
    if not holds:
        raise GuaranteeViolated(seen)


class Probe:
    """An engine under test.

    `prompt` should produce at least 24 tokens if generation continues after the end token. `bad_token_ids` are ids
    outside the vocabulary. `time_limit` is in seconds, for each single step. If `ModelInfo.placeholders` is `template`,
    `image_text` is the text of the model's chat template for an image, and `placeholder_index` is the index of the
    placeholder among its tokens.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        prompt: str = PROMPT,
        bad_token_ids: Sequence[int] = (-1, 2**40),
        time_limit: float = 60.0,
        image_text: str = "",
        placeholder_index: int = 0,
    ) -> None:
        self.engine = engine
        self.prompt = prompt
        self.bad_token_ids = bad_token_ids
        self.time_limit = time_limit
        self.image_text = image_text
        self.placeholder_index = placeholder_index

    def request(
        self,
        *,
        prompt: Prompt | None = None,
        constraint: Constraint | None = None,
        adapter: str | None = None,
        **sampling: Any,
    ) -> EngineRequest:
        """A greedy request for 24 tokens, with a new id. Raises `NotClaimed` for an engine that does not generate."""
        if not (self.has("tokens") or self.has("messages")):
            raise NotClaimed("the engine does not generate")
        # The APIs of engines that take messages have no `ignore_eos`.
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
        """Whether the engine claims the capability."""
        return capability in self.engine.capabilities

    def needs(self, capability: Capability) -> None:
        """Raise `NotClaimed` if the engine does not claim the capability."""
        if not self.has(capability):
            raise NotClaimed(f"the engine does not claim {capability}")

    def needs_a_model(self) -> None:
        """Raise `NotClaimed` for an engine that makes its outputs without a model, and therefore does not sample."""
        if isinstance(self.engine, FormatAwareEngine):
            raise NotClaimed("the engine writes its outputs itself, and samples nothing")

    async def accepted(self, request: EngineRequest, what: str) -> None:
        """Raise `NotClaimed` if the engine rejects the request."""
        try:
            await self.engine.check(request)
        except InvalidRequest as error:
            raise NotClaimed(f"{what}: {error.message}") from error

    async def refused(self, request: EngineRequest, what: str) -> None:
        """Check that both `check` and `generate` reject the request, and that the engine stays alive."""
        doors: dict[str, Callable[[], Awaitable[object]]] = {
            "check": lambda: self.engine.check(request),
            "generate": lambda: generate(self.engine, request),
        }
        for door, attempt in doors.items():
            try:
                await attempt()
            except InvalidRequest:
                continue
            raise GuaranteeViolated(f"{door} took {what}")
        await self.engine.health()

    @property
    def long(self) -> int:
        """A large number of tokens that still fits into the context."""
        return min(4096, (self.engine.info.max_model_len or 4096) // 2)
