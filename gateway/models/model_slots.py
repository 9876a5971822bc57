"""The slots of all configured models: loading on demand, unloading, and requests that wait for a model."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import Context
from typing import Final

from gateway.base.errors import (
    ConfigurationError,
    DeadlineExceeded,
    EngineUnavailable,
    ModelNotFound,
    RateLimited,
)
from gateway.config import ModelConfig
from gateway.models.model_slot import STATES, ModelSlot, ModelState, ModelUse
from gateway.models.served_model import ServedModel
from gateway.observe.metrics import Metrics
from gateway.plugins.protocols import MeasuredEngine
from gateway.tools.available import AvailableTools

logger = logging.getLogger("gateway.models.model_slots")

MAX_BACK_OFF: Final = 60.0
"""Maximum pause between two attempts to load a failing model, in seconds. The pause begins with 1 second, and doubles
after each failure."""


class ModelSlots:
    """The slots of all configured models in a process. At most `max_loaded` models are loaded at a time; None: no
    limit."""

    def __init__(
        self, metrics: Metrics, *, max_loaded: int | None = None, wait_seconds: float = 3600.0
    ) -> None:
        """`wait_seconds`: time limit for a request that waits until its model is loaded, in seconds."""
        self.slots: dict[str, ModelSlot] = {}
        self.models: dict[str, ServedModel] = {}
        """The loaded models and their adapters, by name."""
        self.aliases: dict[str, str] = {}
        self.max_loaded = max_loaded
        self.wait_seconds = wait_seconds
        self.changing_adapters = asyncio.Lock()
        """Held while an adapter is loaded or unloaded, because two concurrent requests could use the same name."""
        self._metrics = metrics
        self.starting = True
        """Whether the process is starting. A failure to load a required model then ends it."""
        self._changed = asyncio.Event()
        self._owners: dict[asyncio.Task[None], ModelSlot] = {}
        """Maps the tasks that hold engines open to their slots, including retired slots."""

    def add(self, slot: ModelSlot) -> None:
        """Serve `slot` under its name and its aliases. An earlier slot of the same name is retired."""
        self.retire(slot.name)
        self.slots[slot.name] = slot
        self.aliases.update(dict.fromkeys(slot.config.aliases, slot.name))
        self._metrics.watch_model(slot.name, slot.admission)
        self._metrics.model_state(slot.name, slot.state, STATES)

    def replace(self, made: Iterable[ModelSlot], configs: Mapping[str, ModelConfig]) -> None:
        """Serve the models of `configs`, in that order, with the new slots in `made`, and otherwise with their
        existing slots. Slots that are no longer used are retired."""
        for name in [name for name in self.slots if name not in configs]:
            self.retire(name)
        for slot in made:
            slot.is_staged = False
            self.add(slot)
            if slot.served:
                self._list(slot)
        self.slots = {name: self.slots[name] for name in configs}
        self.aliases = {alias: name for name, config in configs.items() for alias in config.aliases}

    def discard(self, slot: ModelSlot) -> None:
        """Close a staged slot that will not be served."""
        slot.retired = True
        if slot.state == "loaded":
            slot.ask_to_unload()
        elif slot.task is not None:
            slot.task.cancel()

    def retire(self, name: str) -> ModelSlot | None:
        """Stop serving a model. Its engine is closed when the requests that use it have ended."""
        slot = self.slots.pop(name, None)
        if slot is None:
            return None
        slot.retired = True
        self.aliases = {alias: own for alias, own in self.aliases.items() if own != name}
        for model in slot.served:
            self.models.pop(model.name, None)
        self._metrics.forget_model(name, STATES)
        if slot.state == "loaded":
            slot.ask_to_unload()
        elif slot.state == "loading" and slot.task is not None:
            slot.task.cancel()
        self._notify()
        return slot

    def named(self, name: str) -> ModelSlot | None:
        """The slot of the model with that name or alias; None if there is none."""
        return self.slots.get(self.aliases.get(name, name))

    def find(self, name: str) -> ModelSlot | None:
        """The slot of the model with that name or alias, or with a known adapter of that name; None if there is
        none."""
        own = self.aliases.get(name, name)
        found = self.slots.get(own)
        if found is not None:
            return found
        return next((slot for slot in self.slots.values() if own in slot.adapters), None)

    async def load(self, slot: ModelSlot) -> None:
        """Load a model now, even if an attempt has just failed. Returns when the model is loaded. Raises
        `ConfigurationError` if it cannot be loaded."""
        while slot.state != "loaded":
            self._check_served(slot)
            if slot.state in ("unloaded", "failed"):
                self._begin(slot)
            await self._change()
            if slot.state == "failed" and slot.failure is not None:
                raise slot.failure

    async def unload(self, slot: ModelSlot) -> None:
        """Unload a model, and wait for it. If requests use the model, return immediately; it is unloaded when they
        have ended."""
        if slot.state == "loaded":
            self.ask_to_unload(slot)
        while slot.state == "unloading" and slot.is_idle:
            await self._change()

    def ask_to_unload(self, slot: ModelSlot) -> None:
        slot.ask_to_unload()
        self._note(slot)

    async def acquire(self, slot: ModelSlot, *, waits_for_room: bool = True) -> None:
        """Load a model if necessary, and keep it from being unloaded until `slot.release()`.

        `waits_for_room`: whether to wait for room while all other loaded models are in use. Raises `RateLimited` if
        too many requests wait, `EngineUnavailable` if the model cannot be loaded, `ModelNotFound` if it is no longer
        served, and `DeadlineExceeded` if it is not loaded within `wait_seconds`.
        """
        if slot.state == "loaded":
            slot.hold()
            return
        config = slot.config
        if slot.waiting >= config.max_running + config.max_waiting:
            raise RateLimited(
                f"The model '{slot.name}' is not loaded yet, and {slot.waiting} requests wait for it, which is its limit. Retry "
                "later."
            )
        slot.waiting += 1
        try:
            async with asyncio.timeout(self.wait_seconds):
                await self._acquire(slot, waits_for_room=waits_for_room)
        except TimeoutError:
            raise DeadlineExceeded(
                f"The model '{slot.name}' was not loaded within {self.wait_seconds:g} seconds, which is this server's limit."
            ) from None
        finally:
            slot.waiting -= 1

    async def _acquire(self, slot: ModelSlot, *, waits_for_room: bool) -> None:
        if slot.state == "failed" and time.monotonic() < slot.retry_at:
            raise self._unavailable(slot)
        began = False
        while slot.state != "loaded":
            self._check_served(slot)
            if slot.state == "failed" and began:
                raise self._unavailable(slot)
            if not (waits_for_room or slot.has_room or self._could_make_room()):
                raise EngineUnavailable(
                    f"The model '{slot.name}' is not loaded, and there is no room for it (max_loaded) while the others are in "
                    "use. Retry later."
                )
            if slot.state in ("unloaded", "failed"):
                self._begin(slot)
            began = True
            await self._change()
        slot.hold()

    def _check_served(self, slot: ModelSlot) -> None:
        if slot.retired:
            raise ModelNotFound(f"The model '{slot.name}' is not served any more.", param="model")

    def _unavailable(self, slot: ModelSlot) -> EngineUnavailable:
        # The reason may contain paths and addresses, which clients must not see.
        seconds = max(1, math.ceil(slot.retry_at - time.monotonic()))
        return EngineUnavailable(
            f"The model '{slot.name}' could not be opened, and the server's log says why. Retry in {seconds} s, or use another model.",
            headers={"retry-after": str(seconds)},
        )

    def _begin(self, slot: ModelSlot) -> None:
        slot.begin()
        self._note(slot)
        # In a context of its own: the engine must not belong to the caller whose request needs it first.
        slot.task = task = asyncio.create_task(self._hold_open(slot), context=Context())
        self._owners[task] = slot
        task.add_done_callback(self._owners.pop)

    async def _hold_open(self, slot: ModelSlot) -> None:
        """Load a model, wait until it is to be unloaded, and close it. All in one task, as context managers require."""
        state: ModelState = "unloaded"
        try:
            if slot.is_staged:
                slot.has_room = True
            else:
                await self._make_room(slot)
            async with AsyncExitStack() as stack:
                served = await slot.open_model(slot, stack)
                self._loaded(slot, served)
                await slot.until_unloadable()
                self._unlist(slot)
                logger.info("model %s: unloading", slot.name)
        except ConfigurationError as error:
            state = "failed"
            self._failed(slot, error)
        except Exception as error:
            # Opening raises `ConfigurationError`, but an engine may raise anything when it is closed.
            logger.exception("model %s: %s failed", slot.name, slot.state)
            if slot.state == "loading":
                state = "failed"
                self._failed(slot, ConfigurationError(f"{type(error).__name__}: {error}"))
        finally:
            self._unlist(slot)
            slot.stop_watching()
            slot.has_room = False
            slot.state, slot.task = state, None
            self._note(slot)

    def _loaded(self, slot: ModelSlot, served: Sequence[ServedModel]) -> None:
        for model in served[1:]:
            if self.is_name_used(model.name, besides=slot) or model.name == slot.name:
                raise ConfigurationError(
                    f"The adapter '{model.name}' of model '{slot.name}' is served under its own name, and another model has that "
                    "name, or alias, already: rename one of them."
                )
        slot.serve(served)
        model = slot.served[0]
        slot.uses = _uses_of(model)
        slot.created = model.created
        slot.failure, slot.failures = None, 0
        slot.admission.is_open = True
        slot.last_used = time.monotonic()
        if not (slot.retired or slot.is_staged):
            self._list(slot)
        logger.info("model %s: %s", slot.name, model.why)
        slot.state = "loaded"
        self._note(slot)
        if slot.retired:
            slot.ask_to_unload()
        slot.watch_idle()

    def is_name_used(self, name: str, *, besides: ModelSlot | None = None) -> bool:
        """Whether a model, an adapter or an alias has that name. The names of the slot `besides` do not count."""
        if name in self.aliases:
            return True
        own = None if besides is None else besides.name
        return any(name in slot.names for slot in self.slots.values() if slot.name != own)

    def serve(self, slot: ModelSlot, served: Sequence[ServedModel]) -> None:
        """Use these objects for new requests to a loaded model: the model, followed by its adapters."""
        for model in slot.served:
            self.models.pop(model.name, None)
        slot.serve(served)
        self._list(slot)

    def _list(self, slot: ModelSlot) -> None:
        self.models.update((each.name, each) for each in slot.served)
        engine = slot.served[0].engine
        if isinstance(engine, MeasuredEngine):
            self._metrics.unwatch_engine(engine)
            self._metrics.watch_engine(slot.name, engine)

    def offer_tools(self, tools: Mapping[str, AvailableTools]) -> None:
        """Let new requests use these tools of the gateway. `tools` is keyed by the models' names in the
        configuration."""
        for name, offered in tools.items():
            slot = self.slots[name]
            slot.tools = offered
            if slot.served:
                slot.serve(slot.served)
                self._list(slot)

    def _unlist(self, slot: ModelSlot) -> None:
        slot.admission.is_open = False
        for model in slot.served:
            if self.models.get(model.name) is model:
                del self.models[model.name]
            if isinstance(model.engine, MeasuredEngine):
                self._metrics.unwatch_engine(model.engine)
        slot.served = ()

    def _failed(self, slot: ModelSlot, error: ConfigurationError) -> None:
        slot.failure = error
        slot.failures += 1
        slot.retry_at = time.monotonic() + min(MAX_BACK_OFF, 2.0 ** (slot.failures - 1))
        if not (self.starting and slot.config.required):
            logger.error("model %s could not be opened: %s", slot.name, error)

    async def _make_room(self, slot: ModelSlot) -> None:
        """Wait until fewer than `max_loaded` models are loaded, and count `slot` among them.

        Unloads the least recently used idle model; if none is idle, the least recently used one.
        """
        while not self._has_room():
            others = [each for each in self.slots.values() if each.has_room]
            if not any(each.state == "unloading" for each in others):
                loaded = [each for each in others if each.state == "loaded"]
                if loaded:
                    oldest = min(loaded, key=lambda each: (not each.is_idle, each.last_used))
                    logger.info("model %s: unloaded to make room for %s", oldest.name, slot.name)
                    self.ask_to_unload(oldest)
            await self._change()
        slot.has_room = True

    def _has_room(self) -> bool:
        if self.max_loaded is None:
            return True
        return sum(slot.has_room for slot in self.slots.values()) < self.max_loaded

    def _could_make_room(self) -> bool:
        """Whether there is room for a model, or an idle model could be unloaded."""
        return self._has_room() or any(
            slot.has_room and slot.is_idle and slot.state in ("loaded", "unloading")
            for slot in self.slots.values()
        )

    def _note(self, slot: ModelSlot) -> None:
        if not (slot.retired or slot.is_staged):
            self._metrics.model_state(slot.name, slot.state, STATES)
        self._notify()

    def _notify(self) -> None:
        """Wake all tasks that wait for a change of a slot's state."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()

    async def close(self) -> None:
        """Close all engines, in the reverse order of opening."""
        for slot in [*self.slots.values()]:
            slot.stop_watching()
        for task, slot in reversed(self._owners.copy().items()):
            if slot.state == "loading":
                task.cancel()
            else:
                slot.end()
            await asyncio.wait((task,))


def _uses_of(model: ServedModel) -> frozenset[ModelUse]:
    found: Iterable[tuple[ModelUse, bool]] = (
        ("generates", model.generates),
        ("embeds", model.embedder is not None),
        ("reranks", model.scorer is not None),
    )
    return frozenset(name for name, known in found if known)
