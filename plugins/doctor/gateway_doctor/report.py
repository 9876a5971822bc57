"""The report of `gateway doctor`: a line for each check of a configuration."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from gateway.access.access import check_access
from gateway.access.stored_keys import check_holds_keys
from gateway.answers.chat.tools import check_chat_tools
from gateway.commands.arguments import configuration
from gateway.config import Config
from gateway.config.tables import dotted
from gateway.models.hub.fetching import look_up
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.sdk import CheckableConfig, ConfigurationError, GatewayError
from gateway.sdk.hub import Hub, hub_name_of
from gateway.startup.engine_choice import HUB_ENGINES
from gateway.startup.model_plan import resolve_model
from gateway.startup.selection import (
    Selection,
    check_together,
    resolve,
    resolve_apis,
    resolve_authenticator,
    resolve_policy,
    resolve_resources,
    resolve_router,
    resolve_store,
    resolve_tool,
)
from gateway.startup.settings import check_settings, doubtful_names
from gateway.tools.available import check_allowed_tools

Outcome: TypeAlias = Literal["ok", "warn", "FAIL"]

STORE_SECONDS = 10
"""Time limit in seconds for opening a store and for its answer."""


class ReportLine(Struct, frozen=True):
    """One line of the report."""

    what: str
    outcome: Outcome
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.outcome:4}  {self.what}{f': {self.detail}' if self.detail else ''}"


def report_lines(arguments: argparse.Namespace) -> Iterator[ReportLine]:
    """Check the configuration that the arguments name, and yield each result as it is available."""
    try:
        config = configuration(arguments)
    except ConfigurationError as error:
        yield ReportLine("configuration", "FAIL", str(error))
        return
    yield ReportLine("configuration", "ok", config.source)
    try:
        plugins = load_plugins(config.plugins, strict=False)
    except ConfigurationError as error:
        yield ReportLine("plugins", "FAIL", str(error))
        return
    for info in plugins.plugins:
        yield ReportLine(f"plugin {info.name}", "ok", str(info))
    for failure in plugins.failures:
        outcome: Outcome = "FAIL" if failure.fatal else "ok" if failure.wanted else "warn"
        yield ReportLine(
            f"plugin {failure.plugin.name}", outcome, f"{failure.plugin}: {failure.reason}"
        )
    for name in config.models:
        yield _model(name, config, plugins)
    for name in config.tools:
        yield from _tool(name, config, plugins)
    yield _settings(config, plugins)
    for owner, problem in doubtful_names(config):
        yield ReportLine(owner, "warn", problem)
    for kind, tables, resolved in (
        ("authenticator", config.authenticators, resolve_authenticator),
        ("router", config.routers, resolve_router),
        ("policy", config.policies, resolve_policy),
    ):
        for name in tables:
            try:
                resolved(name, config, plugins)
            except ConfigurationError as error:
                yield ReportLine(f"{kind} {name}", "FAIL", str(error))
            else:
                yield ReportLine(f"{kind} {name}", "ok")
    try:
        apis = resolve_apis(config, plugins)
    except ConfigurationError as error:
        yield ReportLine("apis", "FAIL", str(error))
    else:
        yield ReportLine("apis", "ok", ", ".join(offer.name for offer, _ in apis) or "none")
        try:
            resources = resolve_resources(config, plugins)
        except ConfigurationError as error:
            yield ReportLine("resources", "FAIL", str(error))
        else:
            names = ", ".join(offer.name for offer, _ in resources)
            yield ReportLine("resources", "ok", names or "none")
    yield asyncio.run(_store(config, plugins))
    yield _port(config)


def _model(name: str, config: Config, plugins: PluginSet) -> ReportLine:
    what = f"model {name}"
    model = config.models[name]
    try:
        plan = resolve_model(name, model, plugins)
    except ConfigurationError as error:
        return ReportLine(what, "FAIL", str(error))
    hub_name = hub_name_of(model.path) if model.path is not None else None
    if hub_name is not None and plan.engine.name in HUB_ENGINES:
        try:
            found = look_up(hub_name, Hub.from_environment())
        except ConfigurationError as error:
            return ReportLine(what, "FAIL", f"models.{name}.path: {error}")
        return ReportLine(what, "ok", f"engine {plan.engine.name} ({plan.why}): {found}")
    path = Path(model.path).expanduser() if model.path else None
    local = path is not None and (path.is_absolute() or path.suffix == ".gguf")
    if path is not None and local and not path.exists():
        return ReportLine(what, "FAIL", f"models.{name}.path: there is no {model.path!r}.")
    return ReportLine(what, "ok", f"engine {plan.engine.name} ({plan.why})")


class _Reported(Exception):
    """The error is already reported by another line."""


def _resolved(config: Config, plugins: PluginSet) -> Selection:
    try:
        return resolve(config, plugins)
    except ConfigurationError as error:
        raise _Reported from error


def _settings(config: Config, plugins: PluginSet) -> ReportLine:
    try:
        check_allowed_tools(config)
        check_chat_tools(config)
        check_settings(config)
        with suppress(_Reported):
            check_together(_resolved(config, plugins), plugins)
    except ConfigurationError as error:
        return ReportLine("settings", "FAIL", str(error))
    return ReportLine("settings", "ok", "names, keys, certificates and hosts")


def _tool(name: str, config: Config, plugins: PluginSet) -> Iterator[ReportLine]:
    what = f"tool {name}"
    try:
        _, tool_config = resolve_tool(name, config, plugins)
    except ConfigurationError as error:
        yield ReportLine(what, "FAIL", str(error))
        return
    problems = tool_config.problems() if isinstance(tool_config, CheckableConfig) else ()
    found = [f"{dotted(('tools', name))}.{problem}" for problem in problems]
    if not found:
        yield ReportLine(what, "ok")
    for each in found:
        yield ReportLine(what, "FAIL", each)


async def _store(config: Config, plugins: PluginSet) -> ReportLine:
    what = f"store {config.server.store}"
    try:
        selected = resolve_store(config, plugins)
        if selected is None:
            return ReportLine(what, "ok", "responses are not kept")
        offer, store_config = selected
        async with asyncio.timeout(STORE_SECONDS), offer.make(store_config) as store:
            await store.health()
            if config.server.stored_keys:
                check_holds_keys(store)
    except ConfigurationError as error:
        return ReportLine(what, "FAIL", str(error))
    except TimeoutError:
        return ReportLine(what, "FAIL", f"no answer within {STORE_SECONDS} s")
    except GatewayError as error:
        return ReportLine(what, "FAIL", error.message)
    except Exception as error:  # plugins may raise anything; the other checks continue
        return ReportLine(what, "FAIL", f"{type(error).__name__}: {error}")
    return ReportLine(what, "ok", f"{offer.distribution} {offer.version}")


def _port(config: Config) -> ReportLine:
    # Imported here because the server imports the whole web framework, which listing and help do
    # not need.
    from gateway.process.listening import check_address

    server = config.server
    what = f"address {server.host} port {server.port}"
    if server.unix_socket is not None:
        what = f"Unix socket {server.unix_socket}"
    try:
        check_access(config.server, authenticated=bool(config.authenticators))
        check_address(config)
    except ConfigurationError as error:
        return ReportLine(what, "FAIL", str(error))
    return ReportLine(what, "ok")
