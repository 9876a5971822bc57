"""Discovery and loading of plugins. Only this module reads the entry points of the group `gateway`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, cast, get_args

import pluggy
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.base.packages import how_to_install, names_of, other_names_of, package_of
from gateway.config import PluginsConfig
from gateway.config.tables import TableError, decode_table, dotted, nearest, suggestion
from gateway.plugins.checks import (
    Kind,
    PluginInfo,
    Registrar,
    article,
    mistake_in,
    new_manager,
    one_line,
)
from gateway.plugins.hookspecs import (
    MakeCommand,
    MakeFormat,
    MakeRenderer,
    Offer,
    OpenApiPlugin,
    OpenAuthenticator,
    OpenEngine,
    OpenPolicy,
    OpenResource,
    OpenRouter,
    OpenStore,
    OpenTool,
)

logger = logging.getLogger("gateway.plugins.loading")

GROUP = "gateway"

KINDS: tuple[Kind, ...] = get_args(Kind)
PLURALS = {"policy": "policies"}
"""Irregular plurals in the names of register hooks."""


class PluginFailure(Struct, frozen=True, kw_only=True):
    """An installed plugin that is not loaded."""

    plugin: PluginInfo
    reason: str
    """A sentence without the full stop."""
    fatal: bool = False
    """Whether the start fails even if the plugin is not selected: a mistake in the plugin, or a conflict of two
    plugins."""
    wanted: bool = False
    """Whether the failure is intended: the configuration excludes the plugin."""


class PluginSet:
    """The loaded plugins and their registered offers."""

    def __init__(
        self,
        manager: pluggy.PluginManager,
        plugins: Sequence[PluginInfo],
        names: Mapping[tuple[str, str], Offer[Any]],
        failures: Sequence[PluginFailure],
    ) -> None:
        """`names` maps a kind and a name, or an alias, to the offer."""
        self._manager = manager
        self._names = names
        self.hook: Any = manager.hook
        """pluggy's hook caller, for hooks other than register hooks."""
        self.plugins = plugins
        """The loaded plugins, in load order."""
        self.failures = failures

    def offers(self, kind: Kind | None = None) -> list[Offer[Any]]:
        """The offers of one kind or of all kinds, sorted by name."""
        unique = {
            (offer.kind, offer.name): offer
            for offer in self._names.values()
            if kind in (None, offer.kind)
        }
        return [unique[key] for key in sorted(unique)]

    def aliases(self, offer: Offer[Any]) -> list[str]:
        """The aliases of `offer`."""
        return sorted(
            name
            for (kind, name), each in self._names.items()
            if kind == offer.kind and each is offer and name != offer.name
        )

    def names(self, kind: Kind) -> list[str]:
        """All names and aliases of a kind."""
        return sorted(name for each, name in self._names if each == kind)

    def hooks_of(self, plugin: PluginInfo) -> list[str]:
        """The names of the hooks that a plugin implements, without register hooks."""
        loaded = self._manager.get_plugin(plugin.name)
        hooks = (caller.name for caller in self._manager.get_hookcallers(loaded) or ())
        return sorted(name for name in hooks if not name.startswith("gateway_register_"))

    def engine(self, name: str, where: str = "") -> Offer[OpenEngine]:
        """The engine with that name or alias.

        `where` is the configuration key that names the engine, for the error message. This and the following methods
        raise `ConfigurationError` if no loaded plugin offers that name.
        """
        return self._find("engine", name, where)

    def renderer(self, name: str, where: str = "") -> Offer[MakeRenderer]:
        return self._find("renderer", name, where)

    def parser(self, name: str, where: str = "") -> Offer[MakeFormat]:
        return self._find("parser", name, where)

    def tool(self, name: str, where: str = "") -> Offer[OpenTool]:
        return self._find("tool", name, where)

    def store(self, name: str, where: str = "") -> Offer[OpenStore]:
        return self._find("store", name, where)

    def api(self, name: str, where: str = "") -> Offer[OpenApiPlugin]:
        return self._find("api", name, where)

    def resource(self, name: str, where: str = "") -> Offer[OpenResource]:
        return self._find("resource", name, where)

    def policy(self, name: str, where: str = "") -> Offer[OpenPolicy]:
        return self._find("policy", name, where)

    def authenticator(self, name: str, where: str = "") -> Offer[OpenAuthenticator]:
        return self._find("authenticator", name, where)

    def router(self, name: str, where: str = "") -> Offer[OpenRouter]:
        return self._find("router", name, where)

    def command(self, name: str) -> Offer[MakeCommand]:
        return self._find("command", name, "")

    def needs(self, kind: Kind, name: str) -> tuple[str, ...]:
        """The resources that an offer needs; empty if there is no such offer."""
        offer = self._names.get((kind, name))
        return offer.needs if offer else ()

    def _find(self, kind: Kind, name: str, where: str) -> Offer[Any]:
        if offer := self._names.get((kind, name)):
            return offer
        place = f"{where}: " if where else ""
        for failure in self.failures:
            if failure.plugin.name == name:
                raise ConfigurationError(
                    f"{place}the plugin {name!r} ({failure.plugin}) is installed but not loaded: {failure.reason}."
                )
        others = other_names_of(kind)
        match = nearest(name, {*self.names(kind), *names_of(kind), *others})
        match = others.get(match, match) if match else None
        near = f'; did you mean "{match}"?' if match not in (None, name) else "."
        installed = ", ".join(offer.name for offer in self.offers(kind)) or "none"
        broken = ", ".join(each.plugin.name for each in self.failures if not each.wanted)
        raise ConfigurationError(
            f"{place}no loaded plugin offers {article(kind)} named {name!r}{near} Installed: {installed}."
            + (f" Not loaded: {broken} (see `gateway plugins`)." if broken else "")
            + how_to_install(package_of(kind, match or name))
        )

    def decode_config(self, offer: Offer[Any], table: Mapping[str, Any], where: str) -> Struct:
        """Decode `table` as the offer's config. Raises `ConfigurationError` that names the wrong key, prefixed by
        `where`."""
        try:
            return decode_table(table, offer.config, ())
        except TableError as error:
            key = f"{where}.{dotted(error.path)}".strip(".")
            raise ConfigurationError(f"{key}: {error.problem}") from error


def installed_plugins() -> list[PluginInfo]:
    """The plugins that are installed in this environment, sorted by name. Does not import them."""
    found = metadata.entry_points(group=GROUP)
    return [_info(entry) for entry in sorted(found, key=lambda entry: entry.name)]


def load_plugins(
    config: PluginsConfig | None = None,
    *,
    extra: Iterable[object] = (),
    installed: bool = True,
    strict: bool = True,
) -> PluginSet:
    """Load every installed plugin that `config` allows, and the modules or objects in `extra`.

    If `installed` is False, only those in `extra` are loaded (for tests). A plugin in `extra` that is already loaded
    because it is installed is not loaded twice. A plugin that fails to import or to register is recorded in
    `failures`; this is an error only if the plugin is selected. A misspelt hook, or a name that two plugins register,
    raises `ConfigurationError`; if `strict` is False, it is recorded in `failures` too, for commands that display
    problems.
    """
    loader = _Loader(config or PluginsConfig())
    if installed:
        loader.load_installed()
    for plugin in extra:
        if loader.manager.is_registered(plugin):  # already loaded as an installed plugin
            continue
        name = getattr(plugin, "__name__", type(plugin).__name__).rpartition(".")[2]
        info = PluginInfo(
            name=name.removeprefix("gateway_"), distribution="this program", version=""
        )
        loader.add(info, plugin)
    if strict:
        for failure in loader.failures:
            if failure.fatal:
                raise ConfigurationError(
                    f"the plugin {failure.plugin.name!r} ({failure.plugin}): {failure.reason}."
                )
    return PluginSet(loader.manager, loader.plugins, loader.names, loader.failures)


class _Loader:
    def __init__(self, config: PluginsConfig) -> None:
        self._config = config
        self.manager = new_manager()
        self._own = new_manager()
        """A manager that contains only the plugin that is being added, so that registrations are attributed to it.
        Reused for all plugins, because reading the hook specifications takes longer than loading most plugins."""
        self.plugins: list[PluginInfo] = []
        self.names: dict[tuple[str, str], Offer[Any]] = {}
        self.failures: list[PluginFailure] = []

    def load_installed(self) -> None:
        found = sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name)
        self._check_lists([entry.name for entry in found])
        owners: dict[str, PluginInfo] = {}
        for entry in found:
            info = _info(entry)
            if not self._allowed(entry.name):
                reason = "[plugins] in the configuration does not let it load"
                self.failures.append(PluginFailure(plugin=info, reason=reason, wanted=True))
            elif other := owners.get(entry.name):
                reason = (
                    f"{other} has an entry point of the same name; uninstall {_either(info, other)}"
                )
                self.failures.append(PluginFailure(plugin=info, reason=reason, fatal=True))
            else:
                owners[entry.name] = info
                self._load(info, entry)

    def _check_lists(self, installed: Sequence[str]) -> None:
        for key in ("allow", "disable"):
            for name in getattr(self._config, key) or ():
                if name not in installed:
                    raise ConfigurationError(
                        f"plugins.{key}: no plugin named {name!r} is installed; {suggestion(name, installed)}"
                    )

    def _allowed(self, name: str) -> bool:
        allow = self._config.allow
        return name not in self._config.disable and (allow is None or name in allow)

    def _load(self, info: PluginInfo, entry: metadata.EntryPoint) -> None:
        try:
            plugin = entry.load()
        except (
            Exception,
            SystemExit,
        ) as error:  # importing third-party code may raise anything
            self._fail(info, error, "its import failed")
        else:
            self.add(info, plugin)

    def _fail(self, info: PluginInfo, error: BaseException, what: str) -> None:
        reason = f"{what}: {type(error).__name__}: {one_line(str(error))}".rstrip(": .")
        logger.debug("plugin %s (%s): %s", info.name, info, what, exc_info=error)
        self.failures.append(PluginFailure(plugin=info, reason=reason))

    def add(self, info: PluginInfo, plugin: Any) -> None:
        """Check a plugin and call its register hooks. Keep the plugin if this succeeds, otherwise record the
        failure."""
        try:
            self._add(info, plugin)
        finally:
            if self._own.is_registered(plugin):
                self._own.unregister(plugin)

    def _add(self, info: PluginInfo, plugin: Any) -> None:
        own = self._own
        if mistake := mistake_in(plugin, info.name, own):
            self.failures.append(PluginFailure(plugin=info, reason=mistake, fatal=True))
            return
        offers: dict[tuple[str, str], Offer[Any]] = {}
        try:
            for kind in KINDS:
                register = Registrar(kind, info, offers)
                getattr(own.hook, f"gateway_register_{PLURALS.get(kind, f'{kind}s')}")(
                    register=register
                )
        except ConfigurationError as error:
            reason = str(error).rstrip(".")
            self.failures.append(PluginFailure(plugin=info, reason=reason, fatal=True))
            return
        except Exception as error:  # a third-party hook may raise anything
            self._fail(info, error, "registering failed")
            return
        for (kind_, name), offer in offers.items():
            if other := self.names.get((kind_, name)):
                owner = PluginInfo(
                    name=other.plugin, distribution=other.distribution, version=other.version
                )
                reason = (
                    f"it offers {article(offer.kind)} named {name!r}, and so does the plugin {other.plugin!r} "
                    f"({owner}); uninstall {_either(info, owner)}, or disable one under [plugins]"
                )
                self.failures.append(PluginFailure(plugin=info, reason=reason, fatal=True))
                return
        if self.manager.has_plugin(info.name):
            reason = "a plugin of the same name is loaded already"
            self.failures.append(PluginFailure(plugin=info, reason=reason, fatal=True))
            return
        if not own.get_hookcallers(plugin):
            self.failures.append(PluginFailure(plugin=info, reason="it implements no hook"))
            return
        self.manager.register(plugin, info.name)
        self.plugins.append(info)
        self.names |= offers


def _info(entry: metadata.EntryPoint) -> PluginInfo:
    distribution = entry.dist
    if distribution is None:
        return PluginInfo(name=entry.name, distribution=entry.value, version="")
    # A damaged installation may have an entry point but no metadata.
    fields = cast("Mapping[str, str] | None", distribution.metadata) or {}
    return PluginInfo(
        name=entry.name,
        distribution=fields.get("Name", entry.value),
        version=fields.get("Version", ""),
    )


def _either(one: PluginInfo, other: PluginInfo) -> str:
    if one.distribution == other.distribution:
        return "it"
    return f"{one.distribution} or {other.distribution}"
