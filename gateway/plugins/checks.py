"""Validation of plugins: their hooks, their registrations, and their tool servers."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakSet

import pluggy
from msgspec import Struct
from msgspec import inspect as msgspec_inspect

from gateway.base.errors import ConfigurationError
from gateway.config.tables import suggestion
from gateway.plugins import hookspecs
from gateway.plugins.hookspecs import PROJECT, Offer
from gateway.plugins.protocols import NoConfig, ToolServer

Kind: TypeAlias = Literal[
    "engine",
    "renderer",
    "parser",
    "tool",
    "store",
    "api",
    "resource",
    "router",
    "authenticator",
    "policy",
    "command",
]

CORE_COMMANDS: Final = frozenset(
    {
        "batch", "completion", "config", "health", "help", "install", "key", "models", "new", "plugins", "pull", "reload", "rm",
        "serve", "uninstall", "usage",
    }
)  # fmt: skip
"""Names of the gateway's own commands. Plugins cannot register commands of these names."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_USABLE: Final[WeakSet[type[Struct]]] = WeakSet()
"""Configuration classes that msgspec can use. Cached for processes that start several gateways, such as tests."""


class PluginInfo(Struct, frozen=True, kw_only=True):
    """An installed plugin."""

    name: str
    """The name of the entry point."""
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


def new_manager() -> pluggy.PluginManager:
    """Create a plugin manager with the hook specifications and without plugins."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def mistake_in(plugin: Any, name: str, manager: pluggy.PluginManager) -> str | None:
    """Describe the first mistake in a plugin's hooks. If there is none, register the plugin under `name` in `manager`
    and return None."""
    specs = {
        name: function
        for name, function in vars(hookspecs).items()
        if hasattr(function, f"{PROJECT}_spec")
    }
    for member in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, member)
        if options is None:
            found = inspect.getattr_static(plugin, member, None)
            if member in specs and inspect.isfunction(found) and found is not specs[member]:
                return f"its {member} is not marked with @gateway.hookimpl"
            continue
        hook = options.get("specname") or member
        if hook not in specs:
            return f"there is no hook {hook}; {suggestion(hook, tuple(specs))}"
        allowed = list(inspect.signature(specs[hook]).parameters)
        implementation = inspect.signature(getattr(plugin, member))
        for parameter in implementation.parameters.values():
            if parameter.default is parameter.empty and parameter.name not in allowed:
                near = difflib.get_close_matches(parameter.name, allowed, n=1, cutoff=0)
                return f'{member} has no argument {parameter.name}; did you mean "{near[0]}"?'
        if inspect.iscoroutinefunction(getattr(plugin, member)):
            return f"{member} is asynchronous, and hooks are plain functions"
    try:
        manager.register(plugin, name)
    except pluggy.PluginValidationError as error:  # raised by pluggy's own checks
        return one_line(str(error))
    return None


_SERVER_NAMES: Final = (
    "label",
    "request_type",
    "tools",
    "offered",
    "configured",
    "probe",
    "check",
    "session",
    "call",
    "use",
)
_RENAMED: Final = {
    "for_entry": "check",
    "for_conversation": "check",
    "for_owner": "check",
    "for_request": "check",
    "session_after": "session",
}
"""Earlier names of a tool server's methods."""
_ASYNC: Final = ("tools", "probe", "call")
_WITHOUT_ARGUMENTS: Final = ("tools", "offered", "configured", "probe")
_NEAR: Final = 0.8
"""Minimum similarity at which a name counts as a misspelling of another."""


def tool_server_mistake(server: Any) -> str | None:
    """Describe the first mistake in the class of a tool server; None if there is none."""
    kind = type(server)
    if not isinstance(server, ToolServer):
        return f"{kind.__name__} is not derived from gateway.sdk.ToolServer"
    own = {
        name: value
        for base in reversed(kind.__mro__)
        if base not in ToolServer.__mro__
        for name, value in vars(base).items()
        if not name.startswith("_")
    }
    absent = [name for name in _SERVER_NAMES if name not in own and name != "label"]
    for name in own:
        if name in _SERVER_NAMES:
            continue
        near = difflib.get_close_matches(name, absent, n=1, cutoff=_NEAR)
        if meant := _RENAMED.get(name) or next(iter(near), None):
            return f'{kind.__name__}.{name} is never used; did you mean "{meant}"?'
    for name in _SERVER_NAMES[2:]:
        method = own.get(name)
        if method is None:
            continue
        wanted = name in _ASYNC
        if inspect.iscoroutinefunction(method) != wanted:
            return f"{kind.__name__}.{name} must {'' if wanted else 'not '}be asynchronous"
        if inspect.isasyncgenfunction(method):
            return f"{kind.__name__}.{name} must be decorated with contextlib.asynccontextmanager"
        arguments = [] if name in _WITHOUT_ARGUMENTS else [None]
        try:
            inspect.signature(getattr(server, name)).bind(*arguments)
        except TypeError:
            takes = "one argument" if arguments else "no arguments"
            return f"{kind.__name__}.{name} must take {takes}"
    if not isinstance(getattr(server, "label", None), str):
        return f"{kind.__name__} has no label"
    if server.request_type is None and "tools" not in own:
        return f"{kind.__name__} has no method tools"
    if server.request_type is None and not own.keys() & {"call", "session"}:
        return f"{kind.__name__} has neither a method call nor session"
    return None


def one_line(text: str) -> str:
    """`text` on one line: each run of whitespace becomes a space."""
    return " ".join(text.split())


class Registrar:
    """The `register` argument of a register hook, for one plugin and one kind. Raises `ConfigurationError` if called
    with invalid arguments."""

    def __init__(
        self, kind: Kind, info: PluginInfo, offers: dict[tuple[str, str], Offer[Any]]
    ) -> None:
        self._kind = kind
        self._info = info
        self._offers = offers

    def __call__(
        self,
        name: str,
        make: Callable[..., Any],
        *,
        config: type[Struct] = NoConfig,
        summary: str = "",
        aliases: tuple[str, ...] = (),
        needs: tuple[str, ...] = (),
        needs_tool: bool = False,
        process: Literal["server", "shared", "own"] = "shared",
    ) -> None:
        if process not in ("server", "shared", "own"):
            raise ConfigurationError(
                f"the {self._kind} {name!r} has the process {process!r}, which is none of server, shared and own"
            )
        for what, names in (("aliases", aliases), ("needs", needs)):
            if isinstance(names, str):
                raise ConfigurationError(
                    f"the {what} of the {self._kind} {name!r} are one string, not a tuple"
                )
        if needs and self._kind not in ("tool", "api"):
            raise ConfigurationError(
                f"the {self._kind} {name!r} needs resources, and only tools and APIs are given any"
            )
        if needs_tool and self._kind != "api":
            raise ConfigurationError(
                f"the {self._kind} {name!r} has needs_tool, which is for APIs only"
            )
        if self._kind == "command":
            self._check_command(name, config, summary, aliases)
        if not callable(make):
            raise ConfigurationError(
                f"what it registers as the {self._kind} {name!r} cannot be called"
            )
        if not (isinstance(config, type) and issubclass(config, Struct)):
            raise ConfigurationError(
                f"the config of the {self._kind} {name!r} is not a msgspec Struct class"
            )
        if config not in _USABLE:
            try:
                msgspec_inspect.type_info(config)
            except (NameError, TypeError) as error:
                raise ConfigurationError(
                    f"the config of the {self._kind} {name!r} has an annotation that msgspec cannot use "
                    f"({one_line(str(error))}); what it names must be imported at run time"
                ) from error
            _USABLE.add(config)
        offer = Offer(
            kind=self._kind,
            name=name,
            make=make,
            config=config,
            summary=summary,
            plugin=self._info.name,
            distribution=self._info.distribution,
            version=self._info.version,
            needs=tuple(needs),
            needs_tool=needs_tool,
            process=process,
        )
        for each in (name, *aliases):
            if not isinstance(each, str) or not _NAME.match(each):
                raise ConfigurationError(
                    f"{each!r} is not a valid name for {article(self._kind)}: letters, digits, '_', '-' and '.' make one"
                )
            if self._kind == "resource" and not each.isidentifier():
                raise ConfigurationError(
                    f"{each!r} is not a valid name for a resource, which is given as the argument of its name"
                )
            if (self._kind, each) in self._offers:
                raise ConfigurationError(f"it registers {article(self._kind)} named {each!r} twice")
            self._offers[self._kind, each] = offer

    def _check_command(
        self, name: str, config: type[Struct], summary: str, aliases: tuple[str, ...]
    ) -> None:
        if name in CORE_COMMANDS:
            raise ConfigurationError(
                f"it registers the command {name!r}, which is one of the gateway itself"
            )
        if config is not NoConfig or aliases:
            raise ConfigurationError(f"the command {name!r} can have neither a config nor aliases")
        if not summary:
            raise ConfigurationError(
                f"the command {name!r} has no summary, which `gateway --help` shows"
            )


def article(kind: str) -> str:
    """`kind` with its indefinite article: `an engine`, `a tool`."""
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
