"""/v1/models."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from litestar import delete, get, post
from litestar.params import FromPath
from litestar.types import ASGIApp
from msgspec import UNSET, UnsetType

from gateway.base.errors import (
    ConfigurationError,
    EngineUnavailable,
    MethodNotAllowed,
    ModelNotFound,
)
from gateway.http.answers import json_answer
from gateway.http.codex_catalogue import codex_catalogue
from gateway.http.state import HttpRequest, services_of, services_to_change
from gateway.models.media import shown_capabilities
from gateway.models.model_slot import ModelSlot
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import Capability, Engine
from gateway.wire.listing import Deleted
from gateway.wire.response import ModelList, ModelObject, ShownState

logger = logging.getLogger("gateway.http.models")

_INTERNAL: Final[frozenset[Capability]] = frozenset(
    {"tokens", "messages", "structure", "triggered", "adapters"}
)
"""Capabilities of engines that are not shown, because clients cannot use them."""


@get("/v1/models")
async def list_models(request: HttpRequest) -> ASGIApp:
    """List all models. For Codex, which sends `client_version`, the answer also has a list in Codex's own format."""
    services = services_of(request)
    shown = await asyncio.gather(*map(_shown_with_adapters, services.lookup.visible_slots()))
    visible = [each for models in shown for each in models if services.lookup.may_use(each.id)]
    for_codex = "client_version" in request.query_params
    return json_answer(
        ModelList(data=visible, models=codex_catalogue(visible) if for_codex else UNSET)
    )


@get("/v1/models/{model:path}")
async def retrieve_model(request: HttpRequest, model: FromPath[str]) -> ASGIApp:
    """Retrieve one model by its name or an alias. Names may contain slashes."""
    services = services_of(request)
    name = model.removeprefix("/")
    slot = services.slots.named(name)
    if slot is None or not services.lookup.may_use(name):
        adapter = services.lookup.known_model(name)
        state = _adapter_state(adapter, await _state(adapter.engine))
        return json_answer(_described(adapter, state))
    return json_answer(await _model_object(slot))


@post("/v1/models/{action:path}", status_code=200)
async def change_model(request: HttpRequest, action: FromPath[str]) -> ASGIApp:
    """Load or unload a model, for administrators: `/v1/models/{model}/load`, `/v1/models/{model}/unload`. Returns the
    model.

    `load` is answered when the model is loaded. `unload` is answered when it is unloaded. If requests use the model,
    `unload` is answered immediately, and the model is unloaded when they have ended.
    """
    name, _, verb = action.removeprefix("/").rpartition("/")
    if verb not in ("load", "unload") or not name:
        raise MethodNotAllowed(f"Not allowed: {request.method} {request.url.path}.")
    slot = _slot_to_change(request, name)
    slots = services_of(request).slots
    if verb == "unload":
        await slots.unload(slot)
    else:
        try:
            await slots.load(slot)
        except ConfigurationError as error:
            raise EngineUnavailable(
                f"The model '{slot.name}' could not be loaded: {error}"
            ) from error
    return json_answer(await _model_object(slot))


@delete("/v1/models/{model:path}", status_code=200)
async def delete_model(request: HttpRequest, model: FromPath[str]) -> ASGIApp:
    """Stop serving a model, for administrators. Running requests end before it is unloaded. Its files are kept."""
    slot = _slot_to_change(request, model.removeprefix("/"))
    services_of(request).slots.retire(slot.name)
    logger.info("model %s: deleted by a request", slot.name)
    return json_answer(Deleted(id=slot.name, object="model"))


def _slot_to_change(request: HttpRequest, name: str) -> ModelSlot:
    """The slot of the model called `name`. Raises `PermissionDenied` unless the sender is an administrator, and
    `ModelNotFound`."""
    services = services_to_change(request)
    services.check_open()
    slots = services.slots
    slot = slots.named(name)
    if slot is None:
        raise ModelNotFound(
            f"The model '{name[:100]}' does not exist here. Models: {', '.join(slots.slots)}.",
            param="model",
        )
    return slot


async def _shown_with_adapters(slot: ModelSlot) -> list[ModelObject]:
    own = await _model_object(slot)
    adapters = (_described(each, _adapter_state(each, own.state)) for each in slot.served[1:])
    return [own, *adapters]


async def _model_object(slot: ModelSlot) -> ModelObject:
    if slot.state == "loaded":
        model = slot.served[0]
        return _described(model, await _state(model.engine))
    config = slot.config
    return ModelObject(
        id=slot.name,
        created=slot.created,
        root=slot.name,
        parent=None,
        aliases=config.aliases or UNSET,
        description=config.description or UNSET,
        state=slot.state,
    )


def _described(model: ServedModel, state: ShownState | UnsetType) -> ModelObject:
    aliases = model.config.aliases if model.adapter is None else []
    return ModelObject(
        id=model.name,
        created=model.created,
        max_model_len=model.info.max_model_len or UNSET,
        root=model.adapter or model.name,  # not the path: the location of the weights is private
        parent=model.parent,
        aliases=aliases or UNSET,
        # Not the engine's own description, which may contain the path of its weights or the name of an upstream.
        description=model.config.description or UNSET,
        capabilities=_capabilities(model),
        state=state,
    )


def _capabilities(model: ServedModel) -> list[str]:
    generation = ["generation"] if model.generates else []
    return generation + sorted(shown_capabilities(model.engine, model.media_kinds) - _INTERNAL)


def _adapter_state(adapter: ServedModel, state: ShownState | UnsetType) -> ShownState | UnsetType:
    """`state`, which is the state of the adapter's model; or "failed" if the adapter could not be loaded again after
    its engine's process had ended."""
    if adapter.adapter is None or adapter.adapter in adapter.engine.info.adapters:
        return state
    return "failed"


async def _state(engine: Engine) -> ShownState:
    try:
        await engine.health()
    except Exception:  # engines may raise anything; the list is useful anyway
        return "unavailable"
    return "loaded"
