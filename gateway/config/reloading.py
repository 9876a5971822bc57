"""Determines which settings a running server can change."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.config.loading import config_file, load_config
from gateway.config.structs import Config, ServerConfig, Setting
from gateway.config.tables import dotted

RELOADED = (
    "api_keys", "keys_file", "max_body_bytes", "max_loaded", "max_embedding_inputs", "max_rerank_documents", "max_rerank_bytes",
    "request_timeout", "ping_interval", "log_level", "access_log", "chat_reasoning", "chat_tools", "unavailable_tools",
    "max_conversation_items", "max_conversation_bytes",
)  # fmt: skip
"""The settings under `[server]` that a running server changes. The others need a restart."""
_RELOADED_PATHS = tuple([name] for name in RELOADED)
_RELOADED_TABLES = ("models", "tools", "routes", "prompts")
_RELOADED_SECTIONS = ("server", *_RELOADED_TABLES, "source", "settings")
"""The sections that a running server changes, at least in parts. The others need a restart."""


class ConfigSource(Struct, frozen=True, kw_only=True):
    """The arguments with which a configuration was read, to read it again."""

    path: Path | None = None
    """The path from `--config`."""
    server: Mapping[str, Any] = {}
    models: Sequence[str] = ()
    engine: str | None = None

    @property
    def file(self) -> Path | None:
        """The configuration file; None if there is none."""
        return config_file(self.path, os.environ)

    def read(self) -> Config:
        """Read the configuration. Raises `ConfigurationError`."""
        return load_config(
            self.path, os.environ, server=self.server, models=self.models, engine=self.engine
        )


def reloaded(old: Config, wanted: Config) -> Config:
    """Return `wanted`, but with the values of `old` for all settings that need a restart."""
    fixed = {name: getattr(old.server, name) for name in _server_settings() if name not in RELOADED}
    return msgspec.structs.replace(
        old,
        server=msgspec.structs.replace(wanted.server, **fixed),
        models=wanted.models,
        tools=wanted.tools,
        routes=wanted.routes,
        prompts=wanted.prompts,
        source=wanted.source,
        settings=[
            *(each for each in wanted.settings if _is_reloaded(each)),
            *(each for each in old.settings if not _is_reloaded(each)),
        ],
    )


def _is_reloaded(setting: Setting) -> bool:
    section, *rest = setting.path
    return section in _RELOADED_SECTIONS and (section != "server" or rest[:1] in _RELOADED_PATHS)


def needing_restart(old: Config, wanted: Config) -> list[str]:
    """The names of the settings that differ and need a restart."""
    names = [
        f"server.{name}"
        for name in _server_settings()
        if name not in RELOADED and getattr(old.server, name) != getattr(wanted.server, name)
    ]
    sections = [field.name for field in msgspec.structs.fields(Config)]
    names += [
        name
        for name in sections
        if name not in _RELOADED_SECTIONS and getattr(old, name) != getattr(wanted, name)
    ]
    return names


def changes(old: Config, new: Config) -> list[str]:
    """List the names of the differences between two consecutive configurations: settings of `[server]`, and tables such
    as `models.small`, followed by `(new)` or `(removed)` if only one configuration has the table. Values are not
    included, because they may be secret."""
    names = [
        f"server.{name}"
        for name in _server_settings()
        if getattr(old.server, name) != getattr(new.server, name)
    ]
    for section in _RELOADED_TABLES:
        had, has = getattr(old, section), getattr(new, section)
        for key in [*has, *(key for key in had if key not in has)]:
            table = dotted((section, key))
            if key not in had:
                names.append(f"{table} (new)")
            elif key not in has:
                names.append(f"{table} (removed)")
            elif had[key] != has[key]:
                names.append(table)
    return names


def _server_settings() -> list[str]:
    return [field.name for field in msgspec.structs.fields(ServerConfig)]
