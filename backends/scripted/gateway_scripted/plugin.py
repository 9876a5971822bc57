"""From the configuration to a `ScriptedEngine`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway import hookimpl
from gateway.errors import ConfigurationError
from gateway.hookspecs import EngineContext, OpenEngine, Register
from gateway.testing import Rule, Scenario, ScriptedEngine, ScriptedTokenizer, load_scenario


class ScriptedConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<name>.scripted]`."""

    scenario: str | None = None
    """A scenario file, relative to the working directory; the model's `path` may say the same."""
    rules: list[Rule] = []
    """Rules in the configuration itself; they come after the file's."""
    delay_ms: Annotated[float, Meta(ge=0)] = 0
    """Milliseconds before each output, where the rule says none."""
    recover_after: Annotated[float, Meta(ge=0)] = 1.0
    """Seconds after which a crashed engine serves again."""
    architecture: str | None = None
    """What the model claims to be, so that its renderer and format are found as a real model's are."""
    model_type: str | None = None
    """Likewise."""
    special_tokens: list[str] = []
    """Further markers that are one token each."""
    task: Literal["both", "generate", "embed"] = "both"
    """What the model claims to do."""
    dimensions: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Numbers in a made-up vector."""
    synonyms: list[Annotated[list[str], Meta(min_length=2)]] = []
    """Lists of words that share one vector, so that texts are near each other that share no word."""
    adapters: list[str] = []
    """Names of LoRA adapters, which change nothing."""


@asynccontextmanager
async def open_scripted(
    config: ScriptedConfig, context: EngineContext
) -> AsyncIterator[ScriptedEngine]:
    """The engine of one model. Raises `ConfigurationError` for a scenario that cannot be read."""
    path = config.scenario or context.path
    if config.scenario and context.path:
        raise ConfigurationError(
            f"Model {context.name!r} names two scenarios, path = {context.path!r} and "
            f"scenario = {config.scenario!r}; leave one out."
        )
    rules = [*(load_scenario(path).rules if path else ()), *config.rules]
    try:
        tokenizer = ScriptedTokenizer(config.special_tokens)
    except ValueError as problem:
        raise ConfigurationError(f"Model {context.name!r}: special_tokens: {problem}.") from None
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
        dimensions=None if config.task == "generate" else config.dimensions,
        generates=config.task != "embed",
        adapters=config.adapters,
        synonyms=config.synonyms,
    )


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "scripted",
        open_scripted,
        config=ScriptedConfig,
        summary="answers by a scenario file, without a model",
    )
