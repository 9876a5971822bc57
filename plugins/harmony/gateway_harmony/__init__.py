"""Harmony, the conversation format of the gpt-oss models: a prompt renderer and an output format."""

from __future__ import annotations

from gateway.sdk import (
    MakeFormat,
    MakeRenderer,
    ModelContext,
    ModelInfo,
    ModelProfile,
    NoConfig,
    Register,
    hookimpl,
)
from gateway_harmony.format import HarmonyFormat
from gateway_harmony.markers import CHANNEL, MESSAGE
from gateway_harmony.renderer import HarmonyRenderer, RendererConfig

__all__ = ["HarmonyFormat", "HarmonyRenderer", "RendererConfig"]


def _format(_: NoConfig, context: ModelContext) -> HarmonyFormat:
    return HarmonyFormat(context.tokenizer)


@hookimpl
def gateway_register_renderers(register: Register[MakeRenderer]) -> None:
    register(
        "harmony",
        HarmonyRenderer,
        config=RendererConfig,
        summary="the Harmony prompts of the gpt-oss models",
        aliases=("gpt_oss",),
    )


@hookimpl
def gateway_register_parsers(register: Register[MakeFormat]) -> None:
    register(
        "harmony",
        _format,
        summary="the Harmony output of the gpt-oss models",
        aliases=("openai", "gpt_oss", "gpt-oss", "openai_gptoss"),
    )


@hookimpl(tryfirst=True)
def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
    names = {(model.model_type or "").lower(), (model.architecture or "").lower()}
    if names & {"gpt_oss", "gpt-oss", "gptossforcausallm"}:
        return ModelProfile(
            renderer="harmony", parser="harmony", why="its weights are of the gpt-oss family"
        )
    template = model.chat_template or ""
    # Beam's channels are Harmony's, but its calls are tags.
    if CHANNEL in template and MESSAGE in template and "<rfl:parameter" not in template:
        return ModelProfile(
            renderer="harmony", parser="harmony", why="its chat template writes Harmony"
        )
    return None
