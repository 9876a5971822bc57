"""Opens everything that the configuration selects, and closes it in reverse order."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

from gateway.access.access import Authenticator, check_access, principal_of
from gateway.access.keys import WatchedKeysFile
from gateway.access.limiter import Limiter
from gateway.access.sealing import Sealer
from gateway.access.stored_keys import WatchedStoredKeys, check_holds_keys
from gateway.access.usage_meter import UsageMeter
from gateway.answers.responses.answer import ResponseAnswer
from gateway.answers.responses.background import BackgroundRuns
from gateway.answers.responses.rerun import recreate_run
from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.base.shares import share_threads
from gateway.config import Config, ServerConfig
from gateway.engines.process.starting import EngineProcesses, EngineStarter, HostSettings
from gateway.media.file_reader import FileReader
from gateway.models.routing import Routes, Routing
from gateway.observe.metrics import Metrics
from gateway.plugins.loading import PluginSet
from gateway.plugins.protocols import LimitCounters, ResponseStore, StoredResponse, UsageCounters
from gateway.services import NamedApi, RunSettings, Services
from gateway.startup.model_serving import EngineUse, Opening, check_routes, open_models
from gateway.startup.plugin_list import list_plugins
from gateway.startup.plugin_services import GivenServices
from gateway.startup.reloading import Reloader
from gateway.startup.selection import needed_resources, select
from gateway.startup.tool_opening import OpenTools, offered_tools, tool_tables
from gateway.storage.shared_values import ProcessValues
from gateway.tools.approvals import Approvals

logger = logging.getLogger("gateway.startup")


async def open_services(
    config: Config,
    plugins: PluginSet,
    stack: AsyncExitStack,
    starter: EngineStarter | None = None,
    *,
    opening: Opening = nullcontext,
) -> Services:
    """Open everything that `config` selects and register it with `stack`. Raises `ConfigurationError`.

    `starter` starts the engines' processes. By default, this process starts them, and they end with `stack`.
    `opening` is entered while an engine is opened in this process.
    """
    share_threads()
    check_access(config.server, authenticated=bool(config.authenticators))
    selection = select(config, plugins)
    authenticator, keys_file = await _authenticator(config.server, stack)
    authenticator.ask_first(
        [
            await stack.enter_async_context(offer.make(own_config))
            for offer, own_config in selection.authenticators
        ]
    )
    metrics = Metrics()
    # Called last, because closing may still change metrics. Other workers continue to show the values of this one.
    stack.callback(metrics.refresh)
    tracer = plugins.hook.gateway_open_tracer()
    if tracer is not None:
        tracer = await stack.enter_async_context(tracer)
    store = background = None
    # Before loading any weights, so that an unavailable store fails the start early.
    if selection.store is not None:
        offer, store_config = selection.store
        store = await stack.enter_async_context(offer.make(store_config))
        if config.server.stored_keys:
            await _watch_stored_keys(store, authenticator, stack)
    sealer = await Sealer.create(
        config.server.reasoning_keys,
        store if store is not None and store.lasting else None,
        lifetime=config.server.reasoning_lifetime,
    )
    approvals = await Approvals.create(
        config.server.reasoning_keys,
        ProcessValues() if store is None else store,
        lifetime=config.server.approval_lifetime,
    )
    resources = {
        offer.name: await stack.enter_async_context(offer.make(resource_config))
        for offer, resource_config in selection.resources
    }
    if starter is None:
        server = config.server
        starter = EngineProcesses(
            HostSettings(
                log_level=server.log_level,
                log_format=server.log_format,
                timeout=server.engine_process_timeout,
            )
        )
        stack.push_async_callback(starter.close)
    use = EngineUse(
        starter=starter,
        plugins=config.plugins,
        shared=config.server.workers > 1,
        opening=opening,
    )
    slots = await open_models(config, selection, metrics, lambda: authenticator.several, use, stack)

    async def _recreate_run(record: StoredResponse) -> ResponseAnswer:
        return await recreate_run(record, services)

    if store is not None:
        background = BackgroundRuns(
            store,
            lease_seconds=config.server.lease_seconds,
            max_bytes=config.server.max_background_bytes,
            recreate_run=_recreate_run,
            conversation_bounds=lambda: services.conversation_bounds,
        )
        metrics.watch_background(background)
    apis = [
        NamedApi(
            offer.name,
            await stack.enter_async_context(
                offer.make(api_config, **needed_resources(offer, resources))
            ),
        )
        for offer, api_config in selection.apis
    ]
    tools = OpenTools(resources)
    stack.push_async_callback(tools.close)
    await tools.open_all(config, selection.tools)
    tables = await tool_tables(config, tools.servers)
    slots.offer_tools(offered_tools(config, tables))
    routers = [
        await stack.enter_async_context(offer.make(router_config))
        for offer, router_config in selection.routers
    ]
    policies = [
        await stack.enter_async_context(offer.make(policy_config))
        for offer, policy_config in selection.policies
    ]
    check_routes(config, slots.slots.values())
    services = Services(
        config=config,
        slots=slots,
        store=store,
        tool_tables=tables,
        metrics=metrics,
        settings=RunSettings(request_timeout=config.server.request_timeout),
        hook=plugins.hook,
        background=background,
        authenticator=authenticator,
        sealer=sealer,
        approvals=approvals,
        apis=apis,
        tracer=tracer,
        limiter=await _limiter(config.server, store, stack),
        usage=await _usage(store, plugins, authenticator, stack),
        documents=await stack.enter_async_context(FileReader(config.documents, config.media)),
        routing=Routing(Routes(config.routes), routers),
        plugins=list_plugins(plugins, config),
        policies=policies,
    )
    given = GivenServices(services)
    reloader = Reloader(services, plugins, tools, routers, use, given, keys_file)
    stack.push_async_callback(reloader.close)
    services.reload = reloader.reload
    await reloader.open_media()
    stack.push_async_callback(given.close)
    for name, plugin in (
        *resources.items(),
        *((each.name, each.api) for each in apis),
        *tools.servers.items(),
        *zip((offer.name for offer, _ in selection.routers), routers, strict=True),
        *zip((offer.name for offer, _ in selection.policies), policies, strict=True),
    ):
        given.give(plugin, name)
    # Entered last, so that background responses end before anything else is closed.
    if background is not None:
        await stack.enter_async_context(background.maintenance())
    return services


async def _authenticator(
    config: ServerConfig, stack: AsyncExitStack
) -> tuple[Authenticator, WatchedKeysFile]:
    authenticator = Authenticator(
        config.api_keys,
        open_metrics=not isinstance(config.metrics, list),
        local=config.local,
        more_keys=config.keys_file is not None or config.stored_keys,
    )
    path = None if config.keys_file is None else Path(config.keys_file)
    file = WatchedKeysFile(path, authenticator)
    file.load()
    await stack.enter_async_context(file.watched())
    return authenticator, file


async def _watch_stored_keys(
    store: ResponseStore, authenticator: Authenticator, stack: AsyncExitStack
) -> None:
    check_holds_keys(store)
    keys = WatchedStoredKeys(store, authenticator)
    try:
        await keys.load()
    except StoreUnavailable as error:
        raise ConfigurationError(f"The API keys cannot be read: {error.message}") from error
    await stack.enter_async_context(keys.watched())


async def _limiter(
    config: ServerConfig, store: ResponseStore | None, stack: AsyncExitStack
) -> Limiter:
    counters = store if isinstance(store, LimitCounters) else None
    limited = (
        config.keys_file is not None
        or config.stored_keys
        or any(principal_of(key).limits.any for key in config.api_keys)
    )
    if counters is None and store is not None and store.shared and limited:
        logger.warning(
            "the store '%s' cannot count: limits of API keys hold for each process by itself",
            config.store,
        )
    limiter = Limiter(
        counters, timeout=config.limits_timeout, unavailable=config.limits_unavailable
    )
    await stack.enter_async_context(limiter.maintenance())
    return limiter


async def _usage(
    store: ResponseStore | None,
    plugins: PluginSet,
    authenticator: Authenticator,
    stack: AsyncExitStack,
) -> UsageMeter:
    meter = UsageMeter(
        store if isinstance(store, UsageCounters) else None,
        plugins.hook,
        is_key=lambda name: authenticator.named(name) is not None,
    )
    await stack.enter_async_context(meter.maintenance())
    return meter
