"""The engine on the tiny model that is shipped with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from msgspec import Struct

from gateway.base.constraints import Constraint
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import (
    EngineOutput,
    EngineRequest,
    FinishReason,
    Sampling,
    TokenLogprob,
    TokensPrompt,
)
from gateway_llamacpp import LlamaCppConfig, open_llamacpp
from gateway_llamacpp.engine import LlamaCppEngine

GREETING = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"


class Answer(Struct, frozen=True):
    """All outputs of one generation, and what they add up to."""

    outputs: list[EngineOutput]

    @property
    def text(self) -> str:
        return "".join(output.text for output in self.outputs)

    @property
    def ids(self) -> list[int]:
        return [token for output in self.outputs for token in output.token_ids]

    @property
    def logprobs(self) -> list[TokenLogprob]:
        return [entry for output in self.outputs for entry in output.logprobs or ()]

    @property
    def reason(self) -> FinishReason | None:
        return self.outputs[-1].finish_reason

    @property
    def cause(self) -> str | int | None:
        return self.outputs[-1].stop_reason


def request_for(
    engine: LlamaCppEngine,
    *,
    prompt: str | list[int] = GREETING,
    constraint: Constraint | None = None,
    priority: int = 0,
    cache_salt: str | None = None,
    **sampling: Any,
) -> EngineRequest:
    ids = engine.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    return EngineRequest(
        request_id="test",
        prompt=TokensPrompt(token_ids=ids),
        constraint=constraint,
        priority=priority,
        cache_salt=cache_salt,
        sampling=Sampling(**sampling),
    )


async def answer_to(engine: LlamaCppEngine, **request: Any) -> Answer:
    return Answer([output async for output in engine.generate(request_for(engine, **request))])


GenerationRequest: TypeAlias = Callable[..., Awaitable[Answer]]
MakeRequest: TypeAlias = Callable[..., EngineRequest]


@pytest.fixture
async def engine(anyio_backend: str) -> AsyncIterator[LlamaCppEngine]:
    """Four slots of 1024 tokens."""
    config = LlamaCppConfig(n_parallel=4, n_ctx=1024)
    async with open_llamacpp(config, EngineContext(name="tiny", path=None)) as opened:
        assert isinstance(opened, LlamaCppEngine)
        yield opened


@pytest.fixture
def ask(engine: LlamaCppEngine) -> GenerationRequest:
    """Generate to the end: `ask(prompt=..., constraint=..., **sampling)`."""

    async def ask_engine(**request: Any) -> Answer:
        return await answer_to(engine, **request)

    return ask_engine


@pytest.fixture
def make_request(engine: LlamaCppEngine) -> MakeRequest:
    """A request for the engine, with the same arguments as `ask`."""

    def make(**request: Any) -> EngineRequest:
        return request_for(engine, **request)

    return make
