"""Opens a model: its engine, and then its renderer and output format."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.base.packages import how_to_install, package_of
from gateway.config import ModelConfig
from gateway.config.tables import dotted
from gateway.models.model_uses import (
    NoFormat,
    NoRenderer,
    check_engine,
    generates,
    uses_of,
)
from gateway.plugins.checks import Kind
from gateway.plugins.hookspecs import (
    MakeFormat,
    MakeRenderer,
    ModelContext,
    Offer,
)
from gateway.plugins.loading import PluginSet
from gateway.plugins.protocols import (
    Engine,
    FormatAwareRenderer,
    ModelInfo,
    ModelProfile,
    OutputFormat,
    PromptRenderer,
)
from gateway.startup.model_plan import (
    COMPOSE,
    ModelPlan,
    check_options,
    configured_parser,
    role_config,
)
from gateway.startup.registry import PluginRegistry, naming_plugin


class OpenedModel(Struct, frozen=True, kw_only=True, eq=False):
    """A model that is ready to serve. The stack in which it was opened closes its engine."""

    name: str
    config: ModelConfig
    engine: Engine
    info: ModelInfo
    """The engine's information, with the configured chat template if there is one."""
    renderer: PromptRenderer
    renderer_name: str
    """Registered name of the renderer."""
    output_format: OutputFormat
    profile: ModelProfile | None
    """The plugins' profile of the model; None if no plugin knows the model, or if the configuration leaves nothing
    open."""
    why: str
    """Why this engine, renderer and format were chosen."""


async def open_model(plan: ModelPlan, stack: AsyncExitStack) -> OpenedModel:
    """Open the engine inside `stack`, in this process, and create the model's renderer and format.

    Raises `ConfigurationError`, also for any exception of a plugin, which becomes its cause.
    """
    return finish_opening(plan, await open_engine(plan, stack))


async def open_engine(plan: ModelPlan, stack: AsyncExitStack) -> Engine:
    """Open the engine inside `stack`, in this process. Raises `ConfigurationError`, as `open_model` does."""
    where = dotted(("models", plan.name))
    with naming_plugin(where, f"the engine {plan.engine.name!r} cannot open the model"):
        engine = await stack.enter_async_context(engine_of(plan))
    check_engine(engine, plan.engine.name, where)
    return engine


def engine_of(plan: ModelPlan) -> AbstractAsyncContextManager[Engine]:
    """A context manager that opens the engine in this process. May raise any exception of the plugin."""
    registry = PluginRegistry(plan.plugins, [plan.engine])
    return plan.engine.make(
        plan.engine_config, msgspec.structs.replace(plan.context, registry=registry)
    )


def finish_opening(plan: ModelPlan, engine: Engine) -> OpenedModel:
    """Create the renderer and format for an open engine. Returns the opened model. Raises `ConfigurationError`, as
    `open_model` does."""
    where = dotted(("models", plan.name))
    config, plugins = plan.config, plan.plugins
    info = engine.info
    if not generates(engine):
        return _opened_without_generation(plan, engine)
    if plan.chat_template is not None:
        info = msgspec.structs.replace(
            info, chat_template=plan.chat_template, tool_chat_template=None
        )
    profile = _profile(info, plan) if _leaves_open(config) else None
    renderer = _choose_renderer(plan, profile, info)
    parser, halves = _choose_parser(plan, profile, info)
    selected: list[Offer[Any]] = [plan.engine, renderer, parser]
    check_options(where, config, selected, plugins)
    context = ModelContext(
        info=info,
        tokenizer=engine.tokenizer,
        trust_request_chat_template=config.trust_request_chat_template,
    )
    renderer_config = role_config(renderer, selected, where, config, plugins)
    parser_config = role_config(parser, selected, where, config, plugins, **halves)
    with naming_plugin(where, f"the renderer {renderer.name!r} cannot be created"):
        made_renderer = renderer.make(renderer_config, _context_for(context, renderer, plugins))
    with naming_plugin(where, f"the parser {parser.name!r} cannot be created"):
        made_format = parser.make(parser_config, _context_for(context, parser, plugins))
    if isinstance(made_renderer, FormatAwareRenderer):
        with naming_plugin(where, f"the renderer {renderer.name!r} cannot be created"):
            made_renderer.use_format(made_format)
    return OpenedModel(
        name=plan.name,
        config=config,
        engine=engine,
        info=info,
        renderer=made_renderer,
        renderer_name=renderer.name,
        output_format=made_format,
        profile=profile,
        why=_selection_reason(plan, renderer, parser, halves, profile),
    )


def _context_for(context: ModelContext, offer: Offer[Any], plugins: PluginSet) -> ModelContext:
    """The context that `offer` receives."""
    return msgspec.structs.replace(context, registry=PluginRegistry(plugins, [offer]))


def _opened_without_generation(plan: ModelPlan, engine: Engine) -> OpenedModel:
    """A model that only embeds or reranks, which needs neither renderer nor format."""
    where, config = dotted(("models", plan.name)), plan.config
    check_options(where, config, [plan.engine], plan.plugins)
    for name in ("renderer", "parser", "reasoning", "tools"):
        if getattr(config, name) is not None:
            raise ConfigurationError(
                f"{where}.{name}: this model only {uses_of(engine)}, and has no {name}; leave it out."
            )
    return OpenedModel(
        name=plan.name,
        config=config,
        engine=engine,
        info=engine.info,
        renderer=NoRenderer(engine),
        renderer_name="none",
        output_format=NoFormat(engine),
        profile=None,
        why=f"engine {plan.engine.name} ({plan.why}), which only {uses_of(engine)}",
    )


def _leaves_open(config: ModelConfig) -> bool:
    """Whether the configuration leaves a choice open that a profile can make."""
    whole = config.parser is not None
    halves = config.reasoning is not None and config.tools is not None
    return config.renderer is None or not (whole or halves)


def _profile(info: ModelInfo, plan: ModelPlan) -> ModelProfile | None:
    """The plugins' profile of the model. It does not depend on the order in which plugins are installed and loaded.

    Plugins that ask to be first are asked before the others. Plugins that are asked together must not contradict each
    other.
    """
    where = dotted(("models", plan.name))
    hooks = plan.plugins.hook.gateway_model_profile.get_hookimpls()
    for group in ("tryfirst", "", "trylast"):
        answers: dict[str, ModelProfile] = {}
        for each in hooks:
            if group != ("tryfirst" if each.tryfirst else "trylast" if each.trylast else ""):
                continue
            with naming_plugin(
                where, f"the gateway_model_profile hook of {each.plugin_name!r} failed"
            ):
                profile = each.function(*(info for _ in each.argnames))
                if profile is None:
                    continue
                if not isinstance(profile, ModelProfile):
                    raise TypeError(f"gateway_model_profile answered {type(profile).__name__}")
            answers[each.plugin_name] = profile
        if answers:
            return _only_profile(answers, where)
    return None


def _only_profile(answers: Mapping[str, ModelProfile], where: str) -> ModelProfile:
    """The profile that all plugins agree on. Raises `ConfigurationError` if they do not."""
    names = sorted(answers)
    first = answers[names[0]]
    for name in names[1:]:
        other = answers[name]
        if msgspec.structs.replace(other, why=first.why) != first:
            raise ConfigurationError(
                f"{where}: the plugins {names[0]!r} and {name!r} both know this model, and differ: renderer {first.renderer!r} "
                f"and parser {first.parser!r}, or {other.renderer!r} and {other.parser!r}. Set renderer and parser, or "
                "disable one of the plugins under [plugins]."
            )
    return first


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
    """The offer of the output format, and the two formats that it combines, if it does."""
    where = dotted(("models", plan.name))
    config, plugins = plan.config, plan.plugins
    named = configured_parser(config, plugins, where)
    if named is not None:
        return named, {}
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
        + how_to_install(package_of(kind, "chat_template" if kind == "renderer" else ""))
    )


def _selection_reason(
    plan: ModelPlan,
    renderer: Offer[MakeRenderer],
    parser: Offer[MakeFormat],
    halves: Mapping[str, str],
    profile: ModelProfile | None,
) -> str:
    config = plan.config
    named = " + ".join(halves.values()) if halves else parser.name
    if halves:
        parser_is_configured = all(getattr(config, half) == name for half, name in halves.items())
    else:
        parser_is_configured = config.parser is not None or config.reasoning is not None
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
