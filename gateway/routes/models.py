"""/v1/models."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from litestar import get
from litestar.params import FromPath
from litestar.types import ASGIApp
from msgspec import UNSET

from gateway.protocols import Capability, Engine
from gateway.routes.answers import json_answer
from gateway.routes.state import HttpRequest, services_of
from gateway.runtime.media import shown_capabilities
from gateway.runtime.services import ServedModel, Services
from gateway.wire.response import ModelList, ModelObject

_INTERNAL: Final[frozenset[Capability]] = frozenset(
    {"tokens", "messages", "structure", "triggered", "adapters"}
)
"""Capabilities of engines that mean nothing to clients."""


@get("/v1/models")
async def list_models(request: HttpRequest) -> ASGIApp:
    """List all models."""
    services = services_of(request)
    shown = (_shown(model, services) for model in services.visible_models())
    unopened = [_unopened(name, services) for name in services.unopened if services.may_use(name)]
    return json_answer(ModelList(data=[*await asyncio.gather(*shown), *unopened]))


@get("/v1/models/{model:path}")
async def retrieve_model(request: HttpRequest, model: FromPath[str]) -> ASGIApp:
    """Retrieve one model by its name or an alias. Names may contain slashes."""
    services = services_of(request)
    name = model.removeprefix("/")
    if (own := services.aliases.get(name, name)) in services.unopened and services.may_use(own):
        return json_answer(_unopened(own, services))
    return json_answer(await _shown(services.known_model(name), services))


async def _shown(model: ServedModel, services: Services) -> ModelObject:
    return ModelObject(
        id=model.name,
        created=model.created,
        max_model_len=model.info.max_model_len or UNSET,
        root=model.adapter or model.name,  # not the path: the location of the weights is private
        parent=model.parent,
        aliases=[alias for alias, name in services.aliases.items() if name == model.name] or UNSET,
        # An engine's own description may have the path of its weights or the name of an upstream.
        description=model.config.description or UNSET,
        capabilities=_capabilities(model),
        state=await _state(model.engine),
    )


def _unopened(name: str, services: Services) -> ModelObject:
    """A model that could not be opened, of which little is known."""
    config = services.config.models[name]
    return ModelObject(
        id=name,
        created=services.started,
        root=name,
        parent=None,
        aliases=config.aliases or UNSET,
        description=config.description or UNSET,
        state="unavailable",
    )


def _capabilities(model: ServedModel) -> list[str]:
    generation = ["generation"] if model.generates else []
    return generation + sorted(shown_capabilities(model.engine, model.media_kinds) - _INTERNAL)


async def _state(engine: Engine) -> Literal["ready", "unavailable"]:
    try:
        await engine.health()
    except Exception:  # engines may raise anything; the list is of use all the same
        return "unavailable"
    return "ready"
