"""Finds the models that requests name, and loads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from gateway.base.errors import EngineUnavailable, InvalidRequest, ModelNotFound
from gateway.models.model_slot import ModelSlot, ModelUse
from gateway.models.model_slots import ModelSlots
from gateway.models.model_uses import paths_of, uses_of
from gateway.models.routing import Routing
from gateway.models.served_model import ServedModel
from gateway.observe.request_context import current_context, current_principal
from gateway.plugins.protocols import EmbeddingEngine, ModelLoad, RoutingRequest, ScoringEngine

WaitFor: TypeAlias = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
"""Runs a coroutine, and waits until it ends or until waiting is no longer useful; then, it cancels the coroutine and
waits for its end."""


class ModelLookup:
    """Finds models by the names that requests use: names of models, aliases, adapters and routes. Models that the
    current request's principal may not use are not found."""

    def __init__(self, slots: ModelSlots, routing: Routing, check_open: Callable[[], None]) -> None:
        """`check_open` raises if the server no longer accepts requests."""
        self.routing = routing
        self.slots = slots
        self.check_open = check_open

    async def hold(
        self,
        name: str | None,
        use: ModelUse | None = "generates",
        *,
        waits_for_room: bool = True,
        wait: WaitFor | None = None,
    ) -> Callable[[], None]:
        """Load the model that a request names, if necessary, and keep it from being unloaded until the result is
        called.

        Without a name, the model is the only one that supports `use`. `wait` waits while the model is being loaded,
        and may give up. Raises the same errors as `ModelSlots.acquire`. It does not raise if there is no such model:
        then the methods below raise the error. A run that has reserved a place in the model's queue also keeps the
        model loaded.
        """
        self.check_open()
        slot = self.slot_for(name, use)
        if slot is None:
            return _nothing
        if slot.state == "loaded":
            slot.hold()
            return slot.release
        held: list[ModelSlot] = []
        loading = self._load(name, use, held, waits_for_room=waits_for_room)
        try:
            await (loading if wait is None else wait(loading))
        except BaseException:
            for each in held:
                each.release()
            raise
        return held[0].release if held else _nothing

    @asynccontextmanager
    async def loaded(
        self,
        name: str | None,
        use: ModelUse | None = "generates",
        *,
        waits_for_room: bool = True,
        wait: WaitFor | None = None,
    ) -> AsyncIterator[None]:
        """A context in which the model is loaded; see `hold`."""
        release = await self.hold(name, use, waits_for_room=waits_for_room, wait=wait)
        try:
            yield
        finally:
            release()

    async def _load(
        self,
        name: str | None,
        use: ModelUse | None,
        held: list[ModelSlot],
        *,
        waits_for_room: bool,
    ) -> None:
        """Load the model, and hold it: its slot is added to `held`."""
        context = current_context()
        waits_for_room = waits_for_room and (context is None or context.waits_for_room)
        while True:
            self.check_open()
            slot = self.slot_for(name, use)
            if slot is None:
                return
            try:
                await self.slots.acquire(slot, waits_for_room=waits_for_room)
            except ModelNotFound:
                if self.slot_for(name, use) in (None, slot):
                    raise
                continue  # another slot with that name has replaced it
            held.append(slot)
            return

    def model(self, name: str | None) -> ServedModel:
        """The generating model that a request names. Without a name, the only generating model."""
        found = self._chosen(name, "generates")
        if not found.generates:
            uses, paths = uses_of(found.engine), paths_of(found.engine)
            why = f"only {uses}: use it with {paths}. Models that generate"
            raise self._unable(found, why, "generates")
        return found

    def embedding_model(self, name: str | None) -> tuple[ServedModel, EmbeddingEngine]:
        """The embedding model that a request names, and its engine. Without a name, the only embedding model."""
        found = self._chosen(name, "embeds")
        if found.embedder is None:
            raise self._unable(found, "does not embed. Models that do", "embeds")
        return found, found.embedder

    def scoring_model(self, name: str | None) -> tuple[ServedModel, ScoringEngine]:
        """The reranking model that a request names, and its engine. Without a name, the only reranking model."""
        found = self._chosen(name, "reranks")
        if found.scorer is None:
            raise self._unable(found, "does not rerank. Models that do", "reranks")
        return found, found.scorer

    def _unable(self, found: ServedModel, why: str, use: ModelUse) -> InvalidRequest:
        """The error for a model that does not support `use`. The message ends with the names of the models that do."""
        others = ", ".join(self._names(use)) or "none"
        return InvalidRequest(
            f"The model '{found.name}' {why}: {others}.", param="model", code="model_not_supported"
        )

    def any_model(self, name: str | None) -> ServedModel:
        """The model that a request names, whatever its uses. Without a name, the only model."""
        return self._chosen(name, None)

    def visible_slots(self) -> list[ModelSlot]:
        """The models, loaded or not, that the current request's principal may use."""
        return [slot for slot in self.slots.slots.values() if any(map(self.may_use, slot.names))]

    def may_use(self, name: str) -> bool:
        """Whether the current request's principal may use the model of that name. Any name of the model may permit
        it."""
        principal = current_principal()
        if principal is None or principal.models is None:
            return True
        own = self.slots.aliases.get(name, name)
        others = [alias for alias, target in self.slots.aliases.items() if target == own]
        return any(
            fnmatchcase(each, pattern) for each in (own, *others) for pattern in principal.models
        )

    async def candidates(
        self, name: str | None, *, api: str, use: ModelUse, owner: str | None, size: int
    ) -> Sequence[str | None]:
        """The models to try for a request that names the model `name`, in order.

        Returns names of models and adapters, loaded or not; or just `name` if no router or route concerns it. `api`,
        `owner` and `size` are explained in `RoutingRequest`.
        """
        if not self.routing.concerns(name):
            return (name,)
        able = self._names(use)
        chosen = await self.routing.choose(
            RoutingRequest(
                api=api,
                model=name,
                owner=owner,
                size=size,
                models=[
                    _load(each, slot)
                    for each in able
                    if (slot := self.slots.find(each)) is not None
                ],
            )
        )
        if chosen is None:
            return (name,)
        own = dict.fromkeys(self.slots.aliases.get(each, each) for each in chosen)
        found = [each for each in own if each in able]
        if found:
            return found
        # All of them have other uses, or could not be loaded. Return one, so that the error says so.
        usable = [each for each in own if self.slots.find(each) is not None and self.may_use(each)]
        return usable[:1] or (name,)

    def _target(self, name: str) -> str:
        """If `name` is a route, the first of its models that the principal may use; otherwise `name`."""
        for target in self.routing.routes.targets.get(name, ()):
            own = self.slots.aliases.get(target, target)
            if self.slots.find(own) is not None and self.may_use(own):
                return own
        return name

    def _names(self, use: ModelUse | None) -> list[str]:
        """Names of all models, loaded or not, that may support `use` and that the principal may use."""
        return [
            name
            for slot in self.slots.slots.values()
            if slot.may(use)
            for name in slot.names
            if self.may_use(name)
        ]

    def slot_for(self, name: str | None, use: ModelUse | None) -> ModelSlot | None:
        """The slot of the model that a request names. Without a name, the slot of the only model that may support
        `use`.

        None if there is no such model or more than one, or if the principal may not use it.
        """
        if name is None:
            names = self._names(use)
            slots = {id(slot): slot for each in names if (slot := self.slots.find(each))}
            return next(iter(slots.values())) if len(slots) == 1 else None
        if self.routing.routes.targets:
            name = self._target(name)
        return self.slots.find(name) if self.may_use(name) else None

    def _chosen(self, name: str | None, use: ModelUse | None) -> ServedModel:
        """The model of that name, even if it does not support `use`. Without a name, the only model that may support
        `use`."""
        self.check_open()
        if name is not None:
            return self.known_model(name)
        models = self._names(use)
        if len(models) == 1:
            return self.known_model(models[0])
        if not models:
            raise InvalidRequest(
                f"None of the models here can do this: {', '.join(self._names(None))}.",
                param="model",
                code="model_not_supported",
            )
        raise InvalidRequest(
            f"'model' is missing. Name one of: {', '.join(models)}.",
            param="model",
            code="missing_required_parameter",
        )

    def known_model(self, name: str) -> ServedModel:
        """The loaded model with that name or alias. For a route, the first of its models that the principal may use.

        Raises `ModelNotFound` if there is none or the current request's principal may not use it, and
        `EngineUnavailable` if it is not loaded.
        """
        if self.routing.routes.targets:
            name = self._target(name)
        if not self.may_use(name):
            names = ", ".join(self._names(None)) or "none"
            raise ModelNotFound(
                f"The model '{name[:100]}' does not exist here, or this API key may not use it. Models: {names}.",
                param="model",
            )
        models = self.slots.models
        found = models.get(name) or models.get(self.slots.aliases.get(name, ""))
        if found is not None:
            return found
        slot, names = self.slots.find(name), ", ".join(self._names(None)) or "none"
        if slot is None:
            raise ModelNotFound(
                f"The model '{name[:100]}' does not exist here. Models: {names}.", param="model"
            )
        if slot.state == "failed":
            # The reason may contain paths and addresses, which clients must not see.
            raise EngineUnavailable(
                f"The model '{name}' could not be opened, and the server's log says why. Use another model: {names}."
            )
        raise EngineUnavailable(f"The model '{name}' is not loaded. Send the request again.")


def _nothing() -> None:
    """Release a model that does not exist."""


def _load(name: str, slot: ModelSlot) -> ModelLoad:
    queue, config = slot.admission, slot.config
    return ModelLoad(
        name=name,
        running=queue.running,
        waiting=queue.waiting,
        max_running=config.max_running,
        max_waiting=config.max_waiting,
    )
