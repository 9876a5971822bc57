"""Serves a model of the configuration: creates its slot, and opens it with its adapters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import TypeAlias

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.config import Config, ModelConfig, PluginsConfig, SchemaLimits
from gateway.config.tables import suggestion
from gateway.engines.process.client import engine_in_process
from gateway.engines.process.starting import EngineSpec, EngineStarter
from gateway.generation.adapters import with_adapters
from gateway.models.media import media_capabilities, media_kinds, shown_capabilities
from gateway.models.model_slot import ModelSlot
from gateway.models.model_slots import ModelSlots
from gateway.models.served_model import ServedModel
from gateway.observe.metrics import Metrics
from gateway.plugins.protocols import (
    CitingFormat,
    FormatAwareEngine,
    JoiningFormat,
    LateRefusingEngine,
    PushingEngine,
)
from gateway.startup.model_opening import OpenedModel, finish_opening, open_model
from gateway.startup.model_plan import ModelPlan
from gateway.startup.selection import Selection

logger = logging.getLogger("gateway.startup")

Opening: TypeAlias = Callable[[], AbstractContextManager[None]]


class EngineUse(Struct, frozen=True, kw_only=True, eq=False):
    """How engines in their own processes are opened."""

    starter: EngineStarter
    plugins: PluginsConfig = PluginsConfig()
    """The plugins that the processes load."""
    shared: bool = False
    """Whether other server processes use the same engines."""
    opening: Opening = nullcontext
    """Entered while an engine is opened in this process. Opening may block the event loop."""


def slot_of(
    plan: ModelPlan,
    schemas: SchemaLimits,
    use: EngineUse,
    *,
    several: Callable[[], bool] = bool,
) -> ModelSlot:
    """The slot of a model that is not loaded yet. `schemas` are the limits on constraints in requests. `several`
    returns whether there is more than one principal."""
    context = msgspec.structs.replace(plan.context, compile_seconds=schemas.compile_seconds)
    plan = msgspec.structs.replace(plan, context=context)

    async def open_served(slot: ModelSlot, stack: AsyncExitStack) -> Sequence[ServedModel]:
        if plan.process == "server":
            with use.opening():
                opened = await open_model(plan, stack)
        else:
            opened = await _open_in_process(plan, slot, use, stack)
        return with_adapters(_served(opened, slot, schemas))

    return ModelSlot(
        plan.name,
        plan.config,
        open_served,
        engine_identity=_engine_identity(plan, schemas),
        several=several,
    )


async def _open_in_process(
    plan: ModelPlan, slot: ModelSlot, use: EngineUse, stack: AsyncExitStack
) -> OpenedModel:
    """Open a model with its engine in another process. Raises `ConfigurationError`."""
    spec = EngineSpec(
        name=plan.name,
        config=msgspec.structs.replace(_engine_config(plan), engine=plan.engine.name, process=None),
        plugins=use.plugins,
        compile_seconds=plan.context.compile_seconds,
    )
    limits = slot.admission.limits if use.shared else None
    engine = await stack.enter_async_context(engine_in_process(spec, use.starter, limits))
    opened = finish_opening(plan, engine)
    slot.admission.shared = queue = engine.queue
    if queue is not None and slot.admission.limits != limits:
        queue.resize(slot.admission.limits)  # the limits have changed while the engine was opened
    stack.callback(setattr, slot.admission, "shared", None)
    return opened


_WITHOUT_ENGINE = (
    "aliases", "description", "required", "load", "idle_unload", "max_running", "max_waiting", "sampling",
    "chat_template_kwargs", "allowed_tools", "reasoning_summary", "scheduling", "max_waiting_per_key",
)  # fmt: skip
"""Settings of a model that can change without opening its engine again."""


def _engine_identity(plan: ModelPlan, schemas: SchemaLimits) -> object:
    """A value that is equal for plans that can share an open engine."""
    return (
        _engine_config(plan),
        plan.engine.name,
        plan.engine_config,
        plan.context,
        plan.chat_template,
        plan.process,
        schemas,
    )


def _engine_config(plan: ModelPlan) -> ModelConfig:
    """The model's configuration with only the settings with which the engine is opened. The others have their
    defaults."""
    default = ModelConfig()
    same = {name: getattr(default, name) for name in _WITHOUT_ENGINE}
    return msgspec.structs.replace(plan.config, **same)


def _served(opened: OpenedModel, slot: ModelSlot, schemas: SchemaLimits) -> ServedModel:
    if isinstance(opened.engine, FormatAwareEngine):
        opened.engine.use_format(opened.output_format)
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
        late=opened.engine if isinstance(opened.engine, LateRefusingEngine) else None,
        pushing=opened.engine if isinstance(opened.engine, PushingEngine) else None,
        media_kinds=kinds,
        cites=isinstance(opened.output_format, CitingFormat) and opened.output_format.cites,
        joins_outputs=(
            isinstance(opened.output_format, JoiningFormat) and opened.output_format.joins_outputs
        ),
        schema_limits=schemas,
    )


async def open_models(
    config: Config,
    selection: Selection,
    metrics: Metrics,
    several: Callable[[], bool],
    use: EngineUse,
    stack: AsyncExitStack,
) -> ModelSlots:
    """Create the slots of all models, and load the models that are loaded at start. `stack` closes them. `several`: see
    `slot_of`."""
    slots = ModelSlots(
        metrics, max_loaded=config.server.max_loaded, wait_seconds=config.server.request_timeout
    )
    stack.push_async_callback(slots.close)
    for plan in selection.models:
        slots.add(slot_of(plan, config.server.schemas, use, several=several))
    for slot in slots.slots.values():
        if slot.config.load == "start":
            try:
                await slots.load(slot)
            except ConfigurationError:
                if slot.config.required:
                    raise
    slots.starting = False
    if all(slot.state == "failed" for slot in slots.slots.values()):
        raise ConfigurationError(
            f"None of the models could be opened: {', '.join(slots.slots)}; the log says why."
        )
    return slots


def check_routes(config: Config, slots: Collection[ModelSlot]) -> None:
    """Check that no route has the name of a model, and that the models of all routes exist. The latter is only checked
    once all `slots` are loaded, because the names of adapters are not known before. Raises `ConfigurationError`."""
    known = {name for slot in slots for name in (*slot.names, *config.models[slot.name].aliases)}
    whole = all(slot.state == "loaded" for slot in slots)
    for name, route in config.routes.items():
        for number, target in enumerate(route.models):
            if whole and target not in known:
                raise ConfigurationError(
                    f"{config.source}: routes.{name}.models[{number}]: there is no model {target!r}; "
                    f"{suggestion(target, sorted(known))}"
                )
        if name in known:
            raise ConfigurationError(
                f"{config.source}: routes.{name}: a model has that name already; rename one of them."
            )
