"""Switches to another configuration while the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gateway.access.access import check_access
from gateway.access.keys import WatchedKeysFile
from gateway.access.owned import Owned
from gateway.answers.chat.tools import check_chat_tools
from gateway.base.errors import ConfigurationError
from gateway.config import Config, ServerConfig
from gateway.config.reloading import needing_restart, reloaded
from gateway.generation.adapters import with_adapters
from gateway.media.reader import MediaReader
from gateway.models.model_slot import ModelSlot
from gateway.models.routing import Routes, Routing
from gateway.plugins.loading import PluginSet
from gateway.plugins.protocols import Router, ToolServer
from gateway.services import Services
from gateway.startup.model_plan import ModelPlan
from gateway.startup.model_serving import EngineUse, check_routes, slot_of
from gateway.startup.plugin_services import GivenServices
from gateway.startup.selection import Selection, select
from gateway.startup.tool_opening import OpenTools, offered_tools, tool_tables

logger = logging.getLogger("gateway.startup.reloading")


class Reloader:
    """Applies another configuration to the running gateway."""

    def __init__(
        self,
        services: Services,
        plugins: PluginSet,
        tools: OpenTools,
        routers: Sequence[Router],
        use: EngineUse,
        given: GivenServices,
        keys_file: WatchedKeysFile,
    ) -> None:
        self._services = services
        self._given = given
        self._keys_file = keys_file
        self._routers = routers
        self._plugins = plugins
        self._tools = tools
        self._use = use
        self._media: Owned[MediaReader] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        """Tasks that close tool servers that are no longer selected, once no request can use them."""

    async def open_media(self) -> None:
        """Open the reader of images and sounds if a model accepts any. A model that is not loaded counts, because it
        may."""
        services, slots = self._services, self._services.slots.slots.values()
        if services.media is not None or all(
            slot.state == "loaded" and not any(model.media_kinds for model in slot.served)
            for slot in slots
        ):
            return
        self._media = Owned(MediaReader(services.config.media))
        services.media = await self._media.open()

    async def reload(self, config: Config) -> None:
        """Use `config` for new requests. Running requests keep the configuration with which they began.

        If `config` has an error, or something new cannot be opened, raises `ConfigurationError` and changes nothing.
        Settings that need a restart are not changed, and are named in the log.
        """
        async with self._one_at_a_time:
            self._services.check_open()
            old = self._services.config
            # Authenticators only change at a restart. The open ones count if the new configuration also has some.
            check_access(
                config.server, authenticated=bool(old.authenticators and config.authenticators)
            )
            _check_keys(old.server, config.server)
            # The number of workers does not change. It determines where engines run.
            server = msgspec.structs.replace(config.server, workers=old.server.workers)
            wanted = msgspec.structs.replace(config, server=server)
            # In a thread, because a model's name may have to be looked up on the hub.
            selection = await asyncio.to_thread(select, wanted, self._plugins)
            await self._apply(reloaded(old, config), selection)
            if names := needing_restart(old, config):
                logger.warning("changed, and used after a restart only: %s", ", ".join(names))

    async def _apply(self, config: Config, selection: Selection) -> None:
        services, slots = self._services, self._services.slots
        opened: dict[str, Owned[ToolServer]] = {}
        made: list[ModelSlot] = []
        try:
            check_chat_tools(config)
            path = config.server.keys_file
            keys_path = None if path is None else Path(path)
            keys = await self._keys_file.read(keys_path)
            for name, (offer, tool_config) in zip(config.tools, selection.tools, strict=True):
                if services.config.tools.get(name) != config.tools[name]:
                    opened[name] = await self._tools.open(offer, tool_config)
            owned = {name: opened.get(name) or self._tools.owned[name] for name in config.tools}
            tables = await tool_tables(config, {name: each.value for name, each in owned.items()})
            offered = offered_tools(config, tables)
            for plan in selection.models:
                slot = self._slot_of(plan, config)
                current = slots.slots.get(plan.name)
                if current is None or current.engine_identity != slot.engine_identity:
                    made.append(slot)
                    await self._load_new(slot)
            names = {slot.name for slot in made}
            kept = [
                slots.slots[name]
                for name in config.models
                if name not in names and name in slots.slots
            ]
            check_routes(config, [*made, *kept])
        except BaseException:
            for slot in made:
                slots.discard(slot)
            for each in opened.values():
                await each.close()
            raise
        # From here on, nothing is awaited until everything has changed, so that no request sees a mixture of both
        # configurations.
        have = {*slots.slots, *(slot.name for slot in made)}
        made += [
            self._slot_of(plan, config)
            for plan in selection.models
            if plan.name not in have  # a request has deleted it in the meantime
        ]
        removed = [each for name, each in self._tools.owned.items() if owned.get(name) is not each]
        self._tools.owned = owned
        services.use_config(config, tables)
        self._keys_file.change(keys_path, keys)
        services.lookup.routing = Routing(Routes(config.routes), self._routers)
        slots.max_loaded = config.server.max_loaded
        slots.wait_seconds = config.server.request_timeout
        slots.replace(made, config.models)
        for name, slot in slots.slots.items():
            if slot in made:
                continue
            slot.use_config(config.models[name])
            if slot.served:
                own = msgspec.structs.replace(slot.served[0], config=slot.config)
                slots.serve(slot, with_adapters(own))
        slots.offer_tools(offered)
        for name, each in opened.items():
            self._given.give(each.value, name)
        self._close_later(removed)
        await self.open_media()

    def _slot_of(self, plan: ModelPlan, config: Config) -> ModelSlot:
        authenticator = self._services.authenticator
        return slot_of(
            plan, config.server.schemas, self._use, several=lambda: authenticator.several
        )

    async def _load_new(self, slot: ModelSlot) -> None:
        """Load a model that is not served yet, if it is to be loaded at start."""
        slot.is_staged = True
        if slot.config.load == "start":
            try:
                await self._services.slots.load(slot)
            except ConfigurationError:
                if slot.config.required:
                    raise

    def _close_later(self, removed: Sequence[Owned[ToolServer]]) -> None:
        if removed:
            task = asyncio.create_task(self._close_unused(removed))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close_unused(self, removed: Sequence[Owned[ToolServer]]) -> None:
        """Close tool servers when all requests that began before now have ended."""
        try:
            await self._services.in_progress.ended()
            runs = set(self._services.runs)  # background runs outlive their requests
            while runs & self._services.runs:  # noqa: ASYNC110  # a run tells nobody
                await asyncio.sleep(0.2)
        finally:
            for each in removed:
                try:
                    await self._given.take_back(each.value)
                    await each.close()
                except Exception:  # plugins may raise anything
                    logger.exception("a tool server could not be closed")

    async def close(self) -> None:
        """Close everything that was opened here, including removed tool servers that are still open."""
        for task in tuple(self._closing):
            task.cancel()
            await asyncio.wait((task,))
        if self._media is not None:
            await self._media.close()


def _check_keys(old: ServerConfig, new: ServerConfig) -> None:
    """Raise `ConfigurationError` if the server would change from having API keys to having none, or the reverse."""
    if old.stored_keys:  # changing them needs a restart
        return
    had, has = (bool(each.api_keys) or each.keys_file is not None for each in (old, new))
    if had != has:
        change = "the last API key" if had else "the first API key"
        verb = "removed" if had else "added"
        name = "api_keys" if old.keys_file == new.keys_file else "keys_file"
        raise ConfigurationError(
            f"server.{name}: {change} cannot be {verb} while the server runs; restart it."
        )
