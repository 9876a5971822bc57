"""The slot of a configured model, loaded or not: its name, its state, its queue, and when it is unloaded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from gateway.access.admission import Admission
from gateway.base.errors import ConfigurationError
from gateway.config import ModelConfig
from gateway.models.served_model import ServedModel
from gateway.tools.available import AvailableTools

ModelState: TypeAlias = Literal["unloaded", "loading", "loaded", "unloading", "failed"]

STATES: Final[tuple[ModelState, ...]] = get_args(ModelState)

ModelUse: TypeAlias = Literal["generates", "embeds", "reranks"]
"""A use of models. A model may have several."""

Open: TypeAlias = Callable[["ModelSlot", AsyncExitStack], Awaitable[Sequence[ServedModel]]]
"""Opens a slot's model within the stack. Returns the model, followed by its adapters. Raises `ConfigurationError`."""

logger = logging.getLogger("gateway.models.model_slot")


class ModelSlot:
    """A configured model, loaded or not. Its name and its queue persist when the model is loaded or unloaded."""

    def __init__(
        self,
        name: str,
        config: ModelConfig,
        open_model: Open,
        *,
        engine_identity: object = None,
        several: Callable[[], bool] = bool,
    ) -> None:
        """`engine_identity`: equal for slots that could use the same engine. `several`: see `Admission`."""
        self.name = name
        self.config = config
        self.open_model = open_model
        self.engine_identity = engine_identity
        self.is_staged = False
        """Whether the slot is not served yet. It may then be loaded while the slot that it will replace is still
        loaded."""
        self.admission = Admission(
            name,
            max_running=config.max_running,
            max_waiting=config.max_waiting,
            scheduling=config.scheduling,
            max_waiting_per_key=config.max_waiting_per_key,
            several=several,
            on_idle=self._note_use_ended,
        )
        self.state: ModelState = "unloaded"
        self.served: Sequence[ServedModel] = ()
        """The model and its adapters while it is loaded."""
        self.tools = AvailableTools()
        """The gateway's tools that requests to the model may use."""
        self.adapters: tuple[str, ...] = ()
        """Names of the model's adapters; known after the model was first loaded."""
        self.uses: frozenset[ModelUse] | None = None
        """The uses of the model; None before it was first loaded."""
        self.failure: ConfigurationError | None = None
        """The error of the last attempt to load the model, if it failed."""
        self.failures = 0
        self.retry_at = 0.0
        self.last_used = 0.0
        self.waiting = 0
        """Number of requests that wait until the model is loaded."""
        self.has_room = False
        """Whether the model counts towards `max_loaded`."""
        self.retired = False
        """Whether the slot is no longer served: it was removed, or replaced by another slot."""
        self.created = int(time.time())
        """Unix time at which the model was loaded; before that, at which it was configured."""
        self.task: asyncio.Task[None] | None = None
        """The task that opens the engine, keeps it open, and closes it."""
        self._holds = 0
        self._unload = asyncio.Event()
        self._idle = asyncio.Event()
        self._ending = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request uses the model or waits for it."""
        return not (self._holds or self.admission.running or self.admission.waiting)

    @property
    def names(self) -> Iterator[str]:
        """The model's name and its adapters' names."""
        yield self.name
        yield from self.adapters

    def may(self, use: ModelUse | None) -> bool:
        """Whether the model supports or may support `use`; None: any use. A model that was never loaded may support
        all uses, unless loading it has failed."""
        if self.uses is None:
            return not self.failures
        return use is None or use in self.uses

    def hold(self) -> None:
        """Keep a loaded model from being unloaded until `release` is called."""
        self._holds += 1
        self.last_used = time.monotonic()

    def release(self) -> None:
        self._holds -= 1
        if self.is_idle:
            self._note_use_ended()

    def ask_to_unload(self) -> None:
        """Unload the model as soon as no request uses it. New requests wait, and load it again."""
        self.state = "unloading"
        self._unload.set()

    async def until_unloadable(self) -> None:
        """Wait until unloading is requested, and then until no request uses the model."""
        await self._unload.wait()
        while not (self.is_idle or self._ending):
            self._idle.clear()
            await self._idle.wait()

    def end(self) -> None:
        """Unload the model without waiting for requests. For shutdown, when all requests have ended."""
        self._ending = True
        self._unload.set()
        self._idle.set()

    def begin(self) -> None:
        self._unload.clear()
        self.state = "loading"

    def use_config(self, config: ModelConfig) -> None:
        """Apply settings that do not require another engine."""
        self.config = config
        self.admission.resize(
            config.max_running,
            config.max_waiting,
            scheduling=config.scheduling,
            max_waiting_per_key=config.max_waiting_per_key,
        )
        self.watch_idle()

    def serve(self, served: Sequence[ServedModel]) -> None:
        """Use these objects for new requests: the model, followed by its adapters."""
        self.served = [msgspec.structs.replace(each, tools=self.tools) for each in served]
        self.adapters = tuple(each.name for each in served[1:])

    def _note_use_ended(self) -> None:
        self.last_used = time.monotonic()
        if self.is_idle:
            self._idle.set()
            self.watch_idle()

    def watch_idle(self) -> None:
        """Start the timer that unloads the model after it has been idle for `idle_unload` seconds."""
        if self._timer is None and self.config.idle_unload is not None and self.state == "loaded":
            self._look_in(self.config.idle_unload)

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        idle = self.config.idle_unload
        if self.state != "loaded" or idle is None or not self.is_idle:
            return  # `watch_idle` is called again when the model is loaded or idle
        left = self.last_used + idle - time.monotonic()
        if left > 0:
            self._look_in(left)
            return
        logger.info("model %s: unloaded after %g idle seconds", self.name, idle)
        self.ask_to_unload()

    def stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
