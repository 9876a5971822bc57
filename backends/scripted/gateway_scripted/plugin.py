"""Creates a `ScriptedEngine` from the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.sdk import (
    ChosenPlugins,
    ConfigurationError,
    EngineContext,
    OpenEngine,
    Register,
    hookimpl,
)
from gateway.sdk.processes import ProcessPool
from gateway_scripted.engine import ScriptedEngine
from gateway_scripted.scenario import Rule, Scenario, load_scenario
from gateway_scripted.tokenizer import ScriptedTokenizer


class ScriptedConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<name>.scripted]`."""

    scenario: str | None = None
    """A scenario file, relative to the working directory. The model's `path` may name it instead."""
    rules: list[Rule] = []
    """Rules in the configuration, appended to the file's."""
    delay_ms: Annotated[float, Meta(ge=0)] = 0
    """Default delay before each output, in milliseconds."""
    recover_after: Annotated[float, Meta(ge=0)] = 1.0
    """Seconds until a crashed engine recovers."""
    architecture: str | None = None
    """Reported architecture. It selects the renderer and format, as for a real model."""
    model_type: str | None = None
    """Reported model type. It selects the renderer and format, as for a real model."""
    special_tokens: list[str] = []
    """Additional markers that are one token each."""
    task: Literal["both", "generate", "embed", "rerank"] = "both"
    """Reported task of the model; `both` is generation and embeddings."""
    dimensions: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Length of the generated vectors."""
    synonyms: list[Annotated[list[str], Meta(min_length=2)]] = []
    """Lists of words that share one vector, so that texts without common words can be similar."""
    adapters: list[str] = []
    """Names of LoRA adapters, which have no effect."""
    media: list[Literal["image", "audio"]] = []
    """What the model sees and hears. Each image or sound is described in the prompt by its size and hash."""
    opening_waits_while: str | None = None
    """Path of a file. Opening the model takes as long as it exists."""
    opening_fails_while: str | None = None
    """Path of a file. Opening the model fails while it exists."""
    placeholders: Literal["none", "template"] = "none"
    """Whether the chat template writes a placeholder token for each image, as `template` says, or need not know of images.
    """


def _checked(config: ScriptedConfig, context: EngineContext) -> ScriptedTokenizer:
    """The tokenizer that `config` describes. Raises `ConfigurationError` for settings that do not fit together."""
    if config.scenario and context.path:
        raise ConfigurationError(
            f"Model {context.name!r} names two scenarios, path = {context.path!r} and "
            f"scenario = {config.scenario!r}; leave one out."
        )
    try:
        return ScriptedTokenizer(config.special_tokens)
    except ValueError as problem:
        raise ConfigurationError(f"Model {context.name!r}: special_tokens: {problem}.") from None


@hookimpl
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    for model in chosen.models:
        if isinstance(model.config, ScriptedConfig):
            _checked(model.config, model.context)


@asynccontextmanager
async def open_scripted(
    config: ScriptedConfig, context: EngineContext
) -> AsyncIterator[ScriptedEngine]:
    """The engine of one model. Raises `ConfigurationError` if the scenario cannot be read."""
    while _exists(config.opening_waits_while):  # noqa: ASYNC110  # a file has no event to wait for
        await asyncio.sleep(0.01)
    if _exists(config.opening_fails_while):
        raise ConfigurationError(
            f"Model {context.name!r} cannot be opened while the file {config.opening_fails_while!r} exists."
        )
    tokenizer = _checked(config, context)
    path = config.scenario or context.path
    rules = [*(load_scenario(path).rules if path else ()), *config.rules]
    async with ProcessPool(memory=512 << 20, preload=["gateway_scripted.made_apart"]) as pool:
        yield ScriptedEngine(
            Scenario(rules),
            name=context.name,
            architecture=config.architecture,
            model_type=config.model_type,
            path=path,
            max_model_len=context.max_model_len or 131_072,
            tokenizer=tokenizer,
            delay_ms=config.delay_ms,
            recover_after=config.recover_after,
            dimensions=None if config.task in ("generate", "rerank") else config.dimensions,
            generates=config.task in ("both", "generate"),
            reranks=config.task == "rerank",
            adapters=config.adapters,
            synonyms=config.synonyms,
            media=config.media,
            placeholders=config.placeholders,
            pool=pool,
        )


def _exists(path: str | None) -> bool:
    return path is not None and Path(path).exists()


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "scripted",
        open_scripted,
        config=ScriptedConfig,
        summary="answers by a scenario file, without a model",
    )
