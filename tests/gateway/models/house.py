"""Slots of models whose engines are opened and closed as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.base.errors import ConfigurationError
from gateway.config import ModelConfig
from gateway.models.model_slot import ModelSlot, ModelUse
from gateway.models.model_slots import ModelSlots
from gateway.models.model_uses import NoFormat, NoRenderer
from gateway.models.served_model import ServedModel
from gateway.observe.metrics import Metrics
from gateway_scripted.engine import ScriptedEngine

GENERATES: frozenset[ModelUse] = frozenset({"generates"})


class House:
    """Slots whose engines are opened and closed as a test says."""

    def __init__(self, *, max_loaded: int | None = None, wait_seconds: float = 60) -> None:
        self.slots = ModelSlots(Metrics(), max_loaded=max_loaded, wait_seconds=wait_seconds)
        self.slots.starting = False
        self.events: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.broken: set[str] = set()
        self.left_by: list[type[BaseException] | None] = []
        """The exceptions by which the engines' contexts were left."""
        self._uses: dict[str, Collection[ModelUse]] = {}
        self._adapters: dict[str, Sequence[str]] = {}

    def add(
        self,
        name: str,
        uses: Collection[ModelUse] = GENERATES,
        adapters: Sequence[str] = (),
        **settings: object,
    ) -> ModelSlot:
        """Serve a model for `uses`, which has adapters when it is loaded."""
        self._uses[name], self._adapters[name] = uses, adapters
        slot = ModelSlot(name, ModelConfig(engine="scripted", **settings), self._open)  # type: ignore[arg-type]
        self.slots.add(slot)
        return slot

    async def _open(self, slot: ModelSlot, stack: AsyncExitStack) -> Sequence[ServedModel]:
        self.events.append(f"open {slot.name}")
        await self.open.wait()
        if slot.name in self.broken:
            raise ConfigurationError(f"{slot.name} is broken.")
        uses = self._uses[slot.name]
        engine = ScriptedEngine(
            name=slot.name,
            generates="generates" in uses,
            dimensions=8 if "embeds" in uses else None,
            reranks="reranks" in uses,
        )
        stack.callback(self.events.append, f"close {slot.name}")
        stack.push(lambda kind, *_: self.left_by.append(kind))
        return [
            ServedModel(
                name=name,
                config=slot.config,
                engine=engine,
                renderer=NoRenderer(engine),
                output_format=NoFormat(engine),
                admission=slot.admission,
                info=engine.info,
                created=1,
            )
            for name in (slot.name, *self._adapters[slot.name])
        ]


@asynccontextmanager
async def house(*, max_loaded: int | None = None, wait_seconds: float = 60) -> AsyncIterator[House]:
    made = House(max_loaded=max_loaded, wait_seconds=wait_seconds)
    try:
        yield made
    finally:
        await made.slots.close()
