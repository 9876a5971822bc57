"""What a scripted engine has been asked."""

from __future__ import annotations

from typing import Any

from gateway.plugins.protocols import TokensPrompt
from gateway_scripted import ScriptedEngine
from gateway_testing.server import RunningGateway


def prompts(gateway: RunningGateway, model: str) -> list[str]:
    """The prompts that a model has got, the latest last."""
    engine: Any = gateway.services.models[model].engine
    return [engine.tokenizer.decode(each.prompt.token_ids) for each in engine.requests]


def prompt_of(engine: ScriptedEngine) -> str:
    """The latest prompt."""
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, TokensPrompt)
    return engine.tokenizer.decode(prompt.token_ids)
