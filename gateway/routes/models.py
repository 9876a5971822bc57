"""/v1/models."""

from __future__ import annotations

from litestar import get
from litestar.params import FromPath
from litestar.types import ASGIApp
from msgspec import UNSET

from gateway.routes.answers import json_answer
from gateway.routes.state import HttpRequest, services_of
from gateway.serving.served import ServedModel
from gateway.wire.response import ModelList, ModelObject


@get("/v1/models")
async def list_models(request: HttpRequest) -> ASGIApp:
    """All models that requests may name."""
    services = services_of(request)
    return json_answer(ModelList(data=[_shown(model) for model in services.models.values()]))


@get("/v1/models/{model:path}")
async def retrieve_model(request: HttpRequest, model: FromPath[str]) -> ASGIApp:
    """One model, by its name or an alias; names may hold slashes."""
    return json_answer(_shown(services_of(request).known_model(model.removeprefix("/"))))


def _shown(model: ServedModel) -> ModelObject:
    return ModelObject(
        id=model.name,
        created=model.created,
        max_model_len=model.info.max_model_len or UNSET,
        root=model.adapter or model.info.path or model.name,
        parent=model.parent,
    )
