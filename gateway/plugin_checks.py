"""What a plugin may get wrong in its hooks and in what it registers, as sentences."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import pluggy
from msgspec import Struct
from msgspec import inspect as msgspec_inspect

from gateway import hookspecs
from gateway.config.tables import suggestion
from gateway.errors import ConfigurationError
from gateway.hookspecs import PROJECT, Offer
from gateway.protocols import NoConfig

Kind: TypeAlias = Literal["engine", "renderer", "parser", "tool", "store", "route", "resource"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")


class PluginInfo(Struct, frozen=True, kw_only=True):
    """An installed plugin."""

    name: str
    """The entry point's name."""
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the hooks, and no plugin yet."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def mistake_in(plugin: Any) -> str | None:
    """What is wrong with a plugin's hooks, as they are written."""
    specs = {
        name: function
        for name, function in vars(hookspecs).items()
        if hasattr(function, f"{PROJECT}_spec")
    }
    manager = new_manager()
    for name in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is None:
            found = inspect.getattr_static(plugin, name, None)
            if name in specs and inspect.isfunction(found) and found is not specs[name]:
                return f"its {name} is not marked with @gateway.hookimpl"
            continue
        hook = options.get("specname") or name
        if hook not in specs:
            return f"there is no hook {hook}; {suggestion(hook, tuple(specs))}"
        allowed = list(inspect.signature(specs[hook]).parameters)
        implementation = inspect.signature(getattr(plugin, name))
        for parameter in implementation.parameters.values():
            if parameter.default is parameter.empty and parameter.name not in allowed:
                near = difflib.get_close_matches(parameter.name, allowed, n=1, cutoff=0)
                return f'{name} has no argument {parameter.name}; did you mean "{near[0]}"?'
        if inspect.iscoroutinefunction(getattr(plugin, name)):
            return f"{name} is asynchronous, and hooks are plain functions"
    try:
        manager.register(plugin, "checked")
    except pluggy.PluginValidationError as error:  # what else pluggy refuses
        return one_line(str(error))
    return None


def one_line(text: str) -> str:
    """`text` without its line breaks."""
    return " ".join(text.split())


class Registrar:
    """What one plugin's register hook of one kind is given."""

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
    ) -> None:
        for what, names in (("aliases", aliases), ("needs", needs)):
            if isinstance(names, str):
                raise ConfigurationError(
                    f"the {what} of the {self._kind} {name!r} are one string, not a tuple"
                )
        if needs and self._kind not in ("tool", "route"):
            raise ConfigurationError(
                f"the {self._kind} {name!r} needs resources, and only tools and fronts are given any"
            )
        if not callable(make):
            raise ConfigurationError(
                f"what it registers as the {self._kind} {name!r} cannot be called"
            )
        if not (isinstance(config, type) and issubclass(config, Struct)):
            raise ConfigurationError(
                f"the config of the {self._kind} {name!r} is not a msgspec Struct class"
            )
        try:
            msgspec_inspect.type_info(config)
        except (NameError, TypeError) as error:
            raise ConfigurationError(
                f"the config of the {self._kind} {name!r} has an annotation that msgspec cannot use "
                f"({one_line(str(error))}); what it names must be imported at run time"
            ) from error
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
        )
        for each in (name, *aliases):
            if not isinstance(each, str) or not _NAME.match(each):
                raise ConfigurationError(
                    f"{each!r} is no name for {article(self._kind)}: letters, digits, '_', '-' and '.' make one"
                )
            if self._kind == "resource" and not each.isidentifier():
                raise ConfigurationError(
                    f"{each!r} is no name for a resource, which is given as the argument of its name"
                )
            if (self._kind, each) in self._offers:
                raise ConfigurationError(f"it registers {article(self._kind)} named {each!r} twice")
            self._offers[self._kind, each] = offer


def article(kind: str) -> str:
    """`kind` with its article."""
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
