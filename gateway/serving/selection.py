"""What a configuration selects: from names to offers, and from offers to open models."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.config import Config, ModelConfig
from gateway.config.tables import dotted, suggestion
from gateway.embeddings.only import NoOutput, NoPrompts, check_engine, generates
from gateway.errors import ConfigurationError, GatewayError
from gateway.hookspecs import (
    EngineContext,
    MakeFormat,
    MakeRenderer,
    ModelContext,
    Offer,
    OpenEngine,
    OpenFront,
    OpenResource,
    OpenStore,
    OpenTool,
)
from gateway.plugin_checks import Kind
from gateway.plugins import PluginSet
from gateway.protocols import Engine, ModelInfo, ModelProfile, OutputFormat, PromptRenderer
from gateway.serving.engine_choice import choose_engine
from gateway.tools.offered import check_allowed_tools

logger = logging.getLogger("gateway.serving.selection")

COMPOSE = "composed"
"""The parser that makes one format of a `reasoning` and a `tools` half."""


STANDARD_ROUTES = ("messages",)
"""The further APIs that are served where they are installed and the configuration says nothing."""


class ModelPlan(Struct, frozen=True, kw_only=True):
    """A model whose engine is chosen and whose configuration is checked; nothing is open yet."""

    name: str
    config: ModelConfig
    plugins: PluginSet
    engine: Offer[OpenEngine]
    engine_config: Struct
    context: EngineContext
    why: str
    """Why this engine."""
    chat_template: str | None = None
    """The text of the template that the configuration sets."""


class OpenedModel(Struct, frozen=True, kw_only=True, eq=False):
    """A model that can serve. Its engine is closed by the stack that it was opened in."""

    name: str
    config: ModelConfig
    engine: Engine
    info: ModelInfo
    """The engine's, with the chat template that the configuration sets."""
    renderer: PromptRenderer
    renderer_name: str
    """As it is registered."""
    output_format: OutputFormat
    profile: ModelProfile | None
    """What the plugins know of the model; None where the configuration leaves nothing open, or no plugin knows it."""
    why: str
    """Why this engine, this renderer and this format."""


class Selection(Struct, frozen=True, kw_only=True):
    """All that a configuration selects, checked and not open."""

    models: list[ModelPlan]
    tools: list[tuple[Offer[OpenTool], Struct]]
    store: tuple[Offer[OpenStore], Struct] | None
    routes: list[tuple[Offer[OpenFront], Struct]]
    resources: list[tuple[Offer[OpenResource], Struct]]
    """What the tools and the fronts need, each once."""


def select(config: Config, plugins: PluginSet) -> Selection:
    """Check everything that can be checked without opening anything. Raises `ConfigurationError`."""
    try:
        check_allowed_tools(config)
        return Selection(
            models=[resolve_model(name, model, plugins) for name, model in config.models.items()],
            tools=[resolve_tool(name, config, plugins) for name in config.tools],
            store=resolve_store(config, plugins),
            routes=resolve_routes(config, plugins),
            resources=resolve_resources(config, plugins),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{config.source}: {error}") from error


def resolve_tool(name: str, config: Config, plugins: PluginSet) -> tuple[Offer[OpenTool], Struct]:
    """The tool server that `[tools.<name>]` selects, with its config."""
    where = dotted(("tools", name))
    offer = plugins.tool(name, where)
    return offer, plugins.decode_config(offer, config.tools[name], where)


def resolve_store(config: Config, plugins: PluginSet) -> tuple[Offer[OpenStore], Struct] | None:
    """The store that `server.store` names, with its config; None for `none`."""
    for name in config.stores:
        plugins.store(name, dotted(("stores", name)))
    name = config.server.store
    if name == "none":
        return None
    offer = plugins.store(name, "server.store")
    where = dotted(("stores", name))
    return offer, plugins.decode_config(offer, config.stores.get(name, {}), where)


def resolve_routes(config: Config, plugins: PluginSet) -> list[tuple[Offer[OpenFront], Struct]]:
    """The further APIs that `server.routes` names, each with its config.

    Where it is silent: the standard ones, and those that come with the selected tools and with the resources that these
    need, under their names.
    """
    for name in config.routes:
        plugins.route(name, dotted(("routes", name)))
    names = config.server.routes
    if names is None:
        installed = plugins.names("route")
        needed = (each for name in config.tools for each in plugins.needs("tool", name))
        wanted = dict.fromkeys((*STANDARD_ROUTES, *config.tools, *needed))
        names = [name for name in wanted if name in installed]
    resolved: list[tuple[Offer[OpenFront], Struct]] = []
    for index, name in enumerate(names):
        offer = plugins.route(name, f"server.routes[{index}]")
        if any(offer is each for each, _ in resolved):
            raise ConfigurationError(
                f"server.routes[{index}]: {name!r} is named twice; keep one of them."
            )
        table = config.routes.get(name, {})
        where = dotted(("routes", name))
        resolved.append((offer, plugins.decode_config(offer, table, where)))
    return resolved


def resolve_resources(
    config: Config, plugins: PluginSet
) -> list[tuple[Offer[OpenResource], Struct]]:
    """What the selected tools and fronts need, each with its config and each once."""
    for name in config.resources:
        plugins.resource(name, dotted(("resources", name)))
    users: dict[str, str] = {}
    for tool in config.tools:
        for name in plugins.needs("tool", tool):
            users.setdefault(name, dotted(("tools", tool)))
    for front, _ in resolve_routes(config, plugins):
        for name in front.needs:
            users.setdefault(name, f"the front {front.name!r}")
    resolved: list[tuple[Offer[OpenResource], Struct]] = []
    for name, user in users.items():
        offer = plugins.resource(name, user)
        where = dotted(("resources", name))
        table = config.resources.get(name, {})
        resolved.append((offer, plugins.decode_config(offer, table, where)))
    return resolved


def needed(offer: Offer[Any], resources: Mapping[str, Any]) -> dict[str, Any]:
    """What of the open `resources` the tool or front of `offer` is given."""
    return {name: resources[name] for name in offer.needs}


def resolve_model(name: str, config: ModelConfig, plugins: PluginSet) -> ModelPlan:
    """Choose the model's engine and check all that can be checked before it is open.

    Raises `ConfigurationError` for a name that no plugin offers, an option that fits none, a template that is missing.
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
    if config.parser is not None:
        roles["parser"] = [plugins.parser(config.parser, f"{where}.parser")]
    elif config.reasoning is not None or config.tools is not None:
        roles["parser"] = [plugins.parser(COMPOSE, where)]
    else:
        roles["parser"] = plugins.offers("parser")
    possible = [each for offers in roles.values() for each in offers]
    _check_options(where, config, possible, plugins)
    return ModelPlan(
        name=name,
        config=config,
        plugins=plugins,
        engine=offer,
        engine_config=_role_config(offer, possible, where, config, plugins),
        context=EngineContext(name=name, path=config.path, max_model_len=config.max_model_len),
        why=why,
        chat_template=_chat_template(config.chat_template, where),
    )


def _check_options(
    where: str, config: ModelConfig, offers: list[Offer[Any]], plugins: PluginSet
) -> None:
    """Refuse tables that are named after no plugin of the model."""
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


def _role_config(
    offer: Offer[Any],
    selected: list[Offer[Any]],
    where: str,
    config: ModelConfig,
    plugins: PluginSet,
    **fixed: Any,
) -> Struct:
    """The config of one of a model's plugins.

    An engine, a renderer and a format of one name share one table: each takes the keys that it knows, and a key that none
    of them knows is refused.
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
    """The text of a template that is given as a file or as itself."""
    if written is None or "{" in written or "\n" in written:
        return written
    try:
        return Path(written).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(
            f"{where}.chat_template: the file {written!r} cannot be read: {reason}."
        ) from error


async def open_model(plan: ModelPlan, stack: AsyncExitStack) -> OpenedModel:
    """Open the engine inside `stack`, and make the renderer and the format that its model speaks.

    Raises `ConfigurationError`, also for whatever a plugin raises as it opens: that is its cause.
    """
    where = dotted(("models", plan.name))
    config, plugins = plan.config, plan.plugins
    with _blaming(where, f"the engine {plan.engine.name!r} cannot open the model"):
        engine = await stack.enter_async_context(plan.engine.make(plan.engine_config, plan.context))
    info = engine.info
    check_engine(engine, plan.engine.name, where)
    if not generates(engine):
        return _opened_for_embedding(plan, engine)
    if plan.chat_template is not None:
        info = msgspec.structs.replace(info, chat_template=plan.chat_template)
    profile = _profile(info, plan) if _leaves_open(config) else None
    renderer = _choose_renderer(plan, profile, info)
    parser, halves = _choose_parser(plan, profile, info)
    selected: list[Offer[Any]] = [plan.engine, renderer, parser]
    _check_options(where, config, selected, plugins)
    context = ModelContext(
        info=info,
        tokenizer=engine.tokenizer,
        trust_request_chat_template=config.trust_request_chat_template,
    )
    renderer_config = _role_config(renderer, selected, where, config, plugins)
    parser_config = _role_config(parser, selected, where, config, plugins, **halves)
    with _blaming(where, f"the renderer {renderer.name!r} cannot be made"):
        made_renderer = renderer.make(renderer_config, context)
    with _blaming(where, f"the parser {parser.name!r} cannot be made"):
        made_format = parser.make(parser_config, context)
    return OpenedModel(
        name=plan.name,
        config=config,
        engine=engine,
        info=info,
        renderer=made_renderer,
        renderer_name=renderer.name,
        output_format=made_format,
        profile=profile,
        why=_why(plan, renderer, parser, halves, profile),
    )


def _opened_for_embedding(plan: ModelPlan, engine: Engine) -> OpenedModel:
    """A model that only embeds, which needs neither renderer nor format."""
    where, config = dotted(("models", plan.name)), plan.config
    _check_options(where, config, [plan.engine], plan.plugins)
    for name in ("renderer", "parser", "reasoning", "tools"):
        if getattr(config, name) is not None:
            raise ConfigurationError(
                f"{where}.{name}: this model only embeds, and has no {name}; leave it out."
            )
    return OpenedModel(
        name=plan.name,
        config=config,
        engine=engine,
        info=engine.info,
        renderer=NoPrompts(),
        renderer_name="none",
        output_format=NoOutput(),
        profile=None,
        why=f"engine {plan.engine.name} ({plan.why}), which only embeds",
    )


@contextmanager
def _blaming(where: str, what: str) -> Iterator[None]:
    """Turn whatever a plugin raises while it opens into a sentence that says which plugin it was."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    except GatewayError as error:
        raise ConfigurationError(f"{where}: {what}: {error.message}") from error
    except (
        Exception
    ) as error:  # a plugin may raise anything; none of it shall be a stack trace to its user
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
        logger.debug("%s: %s", where, what, exc_info=error)
        raise ConfigurationError(f"{where}: {what}: {reason}") from error


def _leaves_open(config: ModelConfig) -> bool:
    """Whether the configuration is silent on something that a profile can say."""
    whole = config.parser is not None
    halves = config.reasoning is not None and config.tools is not None
    return config.renderer is None or not (whole or halves)


def _profile(info: ModelInfo, plan: ModelPlan) -> ModelProfile | None:
    where = dotted(("models", plan.name))
    with _blaming(where, "a plugin failed as it was asked for the model's profile"):
        profile = plan.plugins.hook.gateway_model_profile(model=info)
        if profile is not None and not isinstance(profile, ModelProfile):
            raise TypeError(f"gateway_model_profile answered {type(profile).__name__}")
    return profile


def _choose_renderer(
    plan: ModelPlan, profile: ModelProfile | None, info: ModelInfo
) -> Offer[MakeRenderer]:
    where = f"{dotted(('models', plan.name))}.renderer"
    if name := plan.config.renderer or (profile and profile.renderer):
        return plan.plugins.renderer(name, where)
    raise ConfigurationError(_unknown(where, "renderer", plan.plugins, info))


def _choose_parser(
    plan: ModelPlan, profile: ModelProfile | None, info: ModelInfo
) -> tuple[Offer[MakeFormat], dict[str, str]]:
    """The output format's offer, and the halves that it is composed of, if it is."""
    where = dotted(("models", plan.name))
    config, plugins = plan.config, plan.plugins
    if config.parser is not None:
        return plugins.parser(config.parser, f"{where}.parser"), {}
    configured = config.reasoning is not None or config.tools is not None
    if profile is not None and profile.parser is not None and not configured:
        return plugins.parser(profile.parser, f"{where}.parser"), {}
    halves = {
        half: name
        for half in ("reasoning", "tools")
        if (name := getattr(config, half) or (profile and getattr(profile, half)))
    }
    if halves:
        return plugins.parser(COMPOSE, where), halves
    raise ConfigurationError(_unknown(f"{where}.parser", "parser", plugins, info))


def _unknown(where: str, kind: Kind, plugins: PluginSet, info: ModelInfo) -> str:
    described = info.architecture or info.model_type or "of unknown architecture"
    template = "a" if info.chat_template else "no"
    offers = ", ".join(offer.name for offer in plugins.offers(kind)) or "none"
    return (
        f"{where}: no plugin knows the {kind} of this model ({described}, with {template} chat template); "
        f"name one. Installed: {offers}."
    )


def _why(
    plan: ModelPlan,
    renderer: Offer[MakeRenderer],
    parser: Offer[MakeFormat],
    halves: Mapping[str, str],
    profile: ModelProfile | None,
) -> str:
    config = plan.config
    named = " + ".join(halves.values()) if halves else parser.name
    parser_is_configured = config.parser is not None or (
        halves != {} and all(getattr(config, half) == name for half, name in halves.items())
    )
    by_profile = (profile and profile.why) or "its profile"
    in_config = "named in the configuration"
    reasons = [
        in_config if config.renderer is not None else by_profile,
        in_config if parser_is_configured else by_profile,
    ]
    engine = f"engine {plan.engine.name} ({plan.why})"
    if reasons[0] == reasons[1]:
        return f"{engine}, renderer {renderer.name} and parser {named} ({reasons[0]})"
    return f"{engine}, renderer {renderer.name} ({reasons[0]}), parser {named} ({reasons[1]})"
