"""Arguments that a configuration passes to an engine's library unchanged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gateway.base.errors import ConfigurationError
from gateway.config.tables import suggestion


def check_engine_arguments(
    args: Mapping[str, Any],
    where: str,
    *,
    library: str,
    fields: Collection[str],
    reserved: Mapping[str, str],
    known: Collection[str] | None,
) -> None:
    """Raise `ConfigurationError` for a name that must not be in the table `args` of `where`.

    `fields` are the names that are keys of `where` itself. `reserved` maps names that the gateway sets to what must be
    used instead. `known` are the names of the engine arguments of `library`, or None if they are unknown.
    """
    for name in args:
        if name in reserved:
            raise ConfigurationError(
                f"{where}.args.{name} cannot be set there; use {reserved[name]} instead."
            )
        if name in fields:
            raise ConfigurationError(f"{where}.args.{name} has a place of its own: {where}.{name}.")
        if known is not None and name not in known:
            raise ConfigurationError(
                f"{where}.args.{name}: {library} has no such engine argument; {suggestion(name, known)}"
            )
