"""Mistakes in how a plugin's hooks are written, as sentences."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import pluggy

from gateway import hookspecs
from gateway.hookspecs import PROJECT
from gateway.tables import suggestion


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
