"""An engine that gives the outputs that a test tells it to, and a model that it serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, TypeAlias

from gateway.access.admission import Admission
from gateway.config import ModelConfig
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import (
    Capability,
    EngineOutput,
    EngineRequest,
    PromptRenderer,
    RenderedPrompt,
    TokensPrompt,
    Turn,
)
from gateway_parsers import BY_NAME
from gateway_parsers.format import MarkupFormat
from gateway_scripted import ScriptedEngine

HANG: Final = "hang"
Step: TypeAlias = EngineOutput | BaseException | str
"""An output, an error that is raised, or `HANG`: nothing more happens."""


class ToldEngine(ScriptedEngine):
    """Gives one output after the other, with a turn of the event loop before each. Accepts all requests."""

    def __init__(self, steps: Sequence[Step], *, capability: Capability = "tokens") -> None:
        super().__init__(name="m")
        self.steps = steps
        self._only = frozenset({capability})
        self.hangs = asyncio.Event()
        """Whether nothing more happens."""
        self.task: asyncio.Task[object] | None = None
        """The task that reads the outputs."""
        self.closed = 0
        """Number of generations that have ended in any way."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._only

    async def check(self, request: EngineRequest) -> None:
        """Nothing is refused."""

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        self.requests.append(request)
        self.task = asyncio.current_task()
        try:
            for step in self.steps:
                await asyncio.sleep(0)
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, EngineOutput):
                    yield step
                else:
                    self.hangs.set()
                    await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(3):  # an abort takes its time
                await asyncio.sleep(0)
            self.closed += 1


class PushingTold(ToldEngine):
    """Offers some of the outputs in a callback."""

    def __init__(
        self, steps: Sequence[Step], offers: Sequence[bool], *, capability: Capability = "tokens"
    ) -> None:
        """`offers`: whether each output is offered; all that follow are."""
        super().__init__(steps, capability=capability)
        self._offers = offers
        self.taken: list[bool] = []
        """Whether each output was pushed instead of yielded."""
        self.push: Callable[[EngineOutput], bool] | None = None
        """The function that takes outputs; None if the engine was not asked to push."""

    async def generate_pushing(
        self, request: EngineRequest, push: Callable[[EngineOutput], bool]
    ) -> AsyncGenerator[EngineOutput, None]:
        self.push = push
        loop = asyncio.get_running_loop()
        offers = iter(self._offers)
        outputs = self.generate(request)
        try:
            async for output in outputs:
                answer: asyncio.Future[bool] = loop.create_future()
                if next(offers, True):
                    loop.call_soon(_offer, output, push, answer)
                else:
                    answer.set_result(False)
                self.taken.append(await answer)
                if not self.taken[-1]:
                    yield output
        finally:
            await outputs.aclose()


def _offer(
    output: EngineOutput, push: Callable[[EngineOutput], bool], answer: asyncio.Future[bool]
) -> None:
    taken = push(output)
    if not answer.done():
        answer.set_result(taken)


class OneToken:
    """Renders every turn as one token, and whatever else it is told to."""

    def __init__(self, rendered: RenderedPrompt | None = None) -> None:
        self._rendered = rendered or RenderedPrompt(prompt=TokensPrompt(token_ids=(1,)))

    def render(self, turn: Turn) -> RenderedPrompt:
        return self._rendered


def served(
    engine: ScriptedEngine, parser: str = "qwen3", renderer: PromptRenderer | None = None
) -> ServedModel:
    """The model of an engine, with the output format of this name."""
    output_format = MarkupFormat(BY_NAME[parser])
    return ServedModel(
        name="m",
        config=ModelConfig(engine="scripted"),
        engine=engine,
        renderer=OneToken() if renderer is None else renderer,
        output_format=output_format,
        admission=Admission("m", max_running=1, max_waiting=0),
        info=engine.info,
        created=1,
        joins_outputs=output_format.joins_outputs,
        pushing=engine if isinstance(engine, PushingTold) else None,
    )
