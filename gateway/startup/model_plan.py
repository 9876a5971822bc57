"""Plans a model: chooses its engine, and checks its plugins' tables, before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.config import EngineProcess, ModelConfig
from gateway.config.tables import dotted, suggestion
from gateway.plugins.hookspecs import (
    EngineContext,
    MakeFormat,
    Offer,
    OpenEngine,
)
from gateway.plugins.loading import PluginSet
from gateway.startup.engine_choice import choose_engine

COMPOSE = "composed"
"""Name of the output format that combines a `reasoning` and a `tools` format."""


class ModelPlan(Struct, frozen=True, kw_only=True):
    """A model with a chosen engine and checked configuration. Nothing is open yet."""

    name: str
    config: ModelConfig
    plugins: PluginSet
    engine: Offer[OpenEngine]
    engine_config: Struct
    context: EngineContext
    why: str
    """Why this engine was chosen."""
    chat_template: str | None = None
    """Text of the configured template."""
    process: EngineProcess = "server"
    """Where the server opens the engine."""


def resolve_model(
    name: str, config: ModelConfig, plugins: PluginSet, *, workers: int = 1
) -> ModelPlan:
    """Choose the model's engine, and check everything that can be checked before opening it. `workers`: the number of
    server processes.

    Raises `ConfigurationError` for an unknown name, an unknown option, or a missing template.
    """
    where = dotted(("models", name))
    if config.engine is not None:
        engine, why = config.engine, "named in the configuration"
    else:
        try:
            engine, why = choose_engine(config.path, plugins)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from error
    offer = plugins.engine(engine, f"{where}.engine")
    roles: dict[str, list[Offer[Any]]] = {"engine": [offer]}
    if config.renderer is not None:
        roles["renderer"] = [plugins.renderer(config.renderer, f"{where}.renderer")]
    else:
        roles["renderer"] = plugins.offers("renderer")
    parser = configured_parser(config, plugins, where)
    if parser is not None:
        roles["parser"] = [parser]
    elif config.reasoning is not None or config.tools is not None:
        roles["parser"] = [plugins.parser(COMPOSE, where)]
    else:
        roles["parser"] = plugins.offers("parser")
    possible = [each for offers in roles.values() for each in offers]
    check_options(where, config, possible, plugins)
    engines = {offer.name, *plugins.aliases(offer)}
    for each in (*roles["renderer"], *roles["parser"]):
        key, _ = _table(each, config, plugins)
        if key in config.options and key not in engines:  # the engine's table is decoded below
            role_config(each, possible, where, config, plugins)
    return ModelPlan(
        name=name,
        config=config,
        plugins=plugins,
        engine=offer,
        engine_config=role_config(offer, possible, where, config, plugins),
        context=EngineContext(name=name, path=config.path, max_model_len=config.max_model_len),
        why=why,
        chat_template=_chat_template(config.chat_template, where),
        process=_process(offer, config, where, workers),
    )


def _process(
    offer: Offer[OpenEngine], config: ModelConfig, where: str, workers: int
) -> EngineProcess:
    """Where the engine is opened."""
    if config.process == "own" and offer.process == "server":
        raise ConfigurationError(
            f"{where}.process: the engine {offer.name!r} runs in the server process only; leave process out."
        )
    if config.process is not None:
        return config.process
    if offer.process == "server":
        return "server"
    if workers > 1:
        return "own"
    return "own" if offer.process == "own" and config.load == "on_demand" else "server"


def configured_parser(
    config: ModelConfig, plugins: PluginSet, where: str
) -> Offer[MakeFormat] | None:
    """The output format that the configuration names, as `parser`, or as both `reasoning` and `tools`."""
    if config.parser is not None:
        return plugins.parser(config.parser, f"{where}.parser")
    known = plugins.names("parser")
    if config.reasoning in known and config.tools in known and COMPOSE not in config.options:
        format_ = plugins.parser(config.reasoning)
        return format_ if format_ is plugins.parser(config.tools) else None
    return None


def check_options(
    where: str, config: ModelConfig, offers: list[Offer[Any]], plugins: PluginSet
) -> None:
    """Raise `ConfigurationError` for tables that do not belong to a plugin of the model."""
    known = {name for offer in offers for name in (offer.name, *plugins.aliases(offer))}
    for key in config.options:
        if key in known:
            continue
        if key in plugins.names("engine"):
            raise ConfigurationError(
                f"{where}.{key}: this model's engine is {offers[0].name!r}; set engine = {key!r}, or take the table out."
            )
        fields = {"sampling", "chat_template_kwargs"}
        raise ConfigurationError(
            f"{where}.{key}: no plugin of this model has that name; {suggestion(key, known | fields)}"
        )


def _table(
    offer: Offer[Any], config: ModelConfig, plugins: PluginSet
) -> tuple[str, dict[str, Any]]:
    for name in (offer.name, *plugins.aliases(offer)):
        if name in config.options:
            return name, config.options[name]
    return offer.name, {}


def role_config(
    offer: Offer[Any],
    selected: list[Offer[Any]],
    where: str,
    config: ModelConfig,
    plugins: PluginSet,
    **fixed: Any,
) -> Struct:
    """The config of one of a model's plugins.

    An engine, a renderer and a format with the same name share one table. Each uses the keys that it knows. A key that
    none of them knows is an error.
    """
    key, table = _table(offer, config, plugins)
    sharing = [each.config for each in selected if each is not offer and each.name == offer.name]
    own = _keys(offer.config)
    elsewhere = {name for other in sharing for name in _keys(other)} - own
    table = {name: value for name, value in table.items() if name not in elsewhere}
    for name, value in fixed.items():
        if name in table:
            raise ConfigurationError(
                f"{where}.{key}.{name}: {where}.{name} says it already; keep one of them."
            )
        table[name] = value
    return plugins.decode_config(offer, table, f"{where}.{key}")


def _keys(config: type[Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(config)}


def _chat_template(written: str | None, where: str) -> str | None:
    """The text of a template that is given as a file or as text."""
    if written is None or "{" in written or "\n" in written:
        return written
    try:
        return Path(written).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(
            f"{where}.chat_template: the file {written!r} cannot be read: {reason}."
        ) from error
