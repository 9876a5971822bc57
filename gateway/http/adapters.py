"""/v1/load_lora_adapter and /v1/unload_lora_adapter, compatible with vLLM."""

from __future__ import annotations

import logging
from typing import Annotated

from litestar import post
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from gateway.base.errors import InvalidRequest, ModelNotFound, Unsupported
from gateway.generation.adapters import with_adapters
from gateway.http.body import read_body
from gateway.http.loading import loaded
from gateway.http.state import HttpRequest, services_to_change
from gateway.models.model_slot import ModelSlot
from gateway.plugins.protocols import AdapterLoadingEngine
from gateway.services import Services
from gateway.wire.decoding import convert, decode_object
from gateway.wire.large_bodies import decode_body

logger = logging.getLogger("gateway.http.adapters")


class LoadAdapter(Struct):
    """The body of `/v1/load_lora_adapter`. `model` is an extension, needed if there are several models."""

    lora_name: Annotated[str, Meta(min_length=1, max_length=256)]
    lora_path: Annotated[str, Meta(min_length=1, max_length=4096)]
    load_inplace: bool = False
    model: str | None = None


class UnloadAdapter(Struct):
    """The body of `/v1/unload_lora_adapter`. vLLM ignores `lora_int_id` too."""

    lora_name: Annotated[str, Meta(min_length=1, max_length=256)]
    lora_int_id: int | None = None


@post("/v1/load_lora_adapter", status_code=200)
async def load_lora_adapter(request: HttpRequest) -> ASGIApp:
    """Load a LoRA adapter and serve it as a model, for administrators."""
    services = services_to_change(request)
    asked = convert(
        await decode_body(await read_body(request, services), decode_object), LoadAdapter
    )
    name = asked.lora_name
    if not name.isprintable():
        raise InvalidRequest("The name of an adapter is printable text.", param="lora_name")
    if asked.load_inplace:
        raise Unsupported(
            "An adapter is not replaced in place. Unload it, and load it again.",
            param="load_inplace",
        )
    async with loaded(request, asked.model), services.slots.changing_adapters:
        slot = services.lookup.slot_for(asked.model, "generates") or _slot(
            services, services.lookup.model(asked.model).name
        )
        if services.slots.is_name_used(name):
            raise InvalidRequest(
                f"A model, an adapter or an alias has the name '{name}' already.", param="lora_name"
            )
        await _engine(slot).load_adapter(name, asked.lora_path)
        services.slots.serve(slot, with_adapters(slot.served[0]))
    logger.info("model %s: the adapter %s was loaded by a request", slot.name, name)
    return _plain_text(f"Success: LoRA adapter '{name}' added successfully.")


@post("/v1/unload_lora_adapter", status_code=200)
async def unload_lora_adapter(request: HttpRequest) -> ASGIApp:
    """Stop serving a LoRA adapter, for administrators. Running requests are not affected."""
    services = services_to_change(request)
    asked = convert(
        await decode_body(await read_body(request, services), decode_object), UnloadAdapter
    )
    name = asked.lora_name
    async with loaded(request, name), services.slots.changing_adapters:
        model = services.models.get(name)
        if model is None or model.adapter is None:
            raise ModelNotFound(f"The adapter '{name}' is not loaded.", param="lora_name")
        slot = _slot(services, model.parent or "")
        await _engine(slot).unload_adapter(name)
        services.slots.serve(slot, with_adapters(slot.served[0]))
    logger.info("model %s: the adapter %s was unloaded by a request", slot.name, name)
    return _plain_text(f"Success: LoRA adapter '{name}' removed successfully.")


def _slot(services: Services, name: str) -> ModelSlot:
    slot = services.slots.slots.get(name)
    if slot is None or not slot.served:
        raise InvalidRequest(
            f"The model '{name}' has just been unloaded. Send the request again.", param="model"
        )
    return slot


def _engine(slot: ModelSlot) -> AdapterLoadingEngine:
    engine = slot.served[0].engine
    if not isinstance(engine, AdapterLoadingEngine):
        raise Unsupported(
            f"The engine of '{slot.name}' ({engine.info.engine}) cannot load or unload adapters while it runs. Name them in the "
            "configuration, if it takes any.",
            param="model",
        )
    return engine


def _plain_text(sentence: str) -> ASGIApp:
    return ASGIResponse(body=sentence.encode(), media_type="text/plain")
