"""Serving a model of the configuration: its slot, and opening it with its adapters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import msgspec

from gateway.config import SchemaLimits
from gateway.loop.adapters import with_adapters
from gateway.protocols import FormatAwareEngine
from gateway.runtime.media import media_capabilities, media_kinds, shown_capabilities
from gateway.runtime.model_slots import ModelSlot
from gateway.runtime.served_model import ServedModel
from gateway.startup.model_opening import OpenedModel, open_model
from gateway.startup.model_plan import ModelPlan

logger = logging.getLogger("gateway.startup")


def slot_of(
    plan: ModelPlan, schemas: SchemaLimits, *, several: Callable[[], bool] = bool
) -> ModelSlot:
    """The slot of a model, which is not loaded yet. `schemas` are the limits on constraints in requests; `several` says
    whether there is more than one principal."""
    context = msgspec.structs.replace(plan.context, compile_seconds=schemas.compile_seconds)
    plan = msgspec.structs.replace(plan, context=context)

    async def open_served(slot: ModelSlot, stack: AsyncExitStack) -> Sequence[ServedModel]:
        opened = await open_model(plan, stack)
        return with_adapters(_served(opened, slot, schemas))

    return ModelSlot(plan.name, plan.config, open_served, several=several)


def _served(opened: OpenedModel, slot: ModelSlot, schemas: SchemaLimits) -> ServedModel:
    if isinstance(opened.engine, FormatAwareEngine):
        opened.engine.speak(opened.output_format)
    kinds = media_kinds(opened.engine, opened.renderer)
    if unused := media_capabilities(opened.engine) - shown_capabilities(opened.engine, kinds):
        logger.warning(
            "model %s: the engine takes %s, but the prompts of its renderer show none: the model's chat template has no "
            "place for them, or the renderer is of another family. Set chat_template or renderer.",
            opened.name,
            " and ".join(sorted(unused)),
        )
    return ServedModel(
        name=opened.name,
        config=slot.config,
        engine=opened.engine,
        renderer=opened.renderer,
        output_format=opened.output_format,
        admission=slot.admission,
        info=opened.info,
        created=int(time.time()),
        why=opened.why,
        media_kinds=kinds,
        schema_limits=schemas,
    )
