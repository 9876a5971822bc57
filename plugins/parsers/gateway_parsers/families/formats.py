"""The formats that the plugin offers."""

from __future__ import annotations

from gateway_parsers.families.calls import HERMES
from gateway_parsers.families.reasoning import THINK, THINK_FROM_START
from gateway_parsers.spec import FormatSpec

FORMATS = (
    FormatSpec(
        name="qwen3",
        reasoning=THINK,
        calls=HERMES,
        aliases=("hermes", "qwen", "qwen3_json", "qwen25"),
        summary="<think> reasoning and JSON calls in <tool_call> tags (Qwen3, Qwen2.5, Hermes)",
    ),
    FormatSpec(
        name="deepseek_r1",
        reasoning=THINK_FROM_START,
        summary="<think> reasoning that the prompt opens, no tool calls (DeepSeek-R1 and distills)",
    ),
    FormatSpec(
        name="think",
        reasoning=THINK,
        summary="<think> reasoning that the prompt or the model opens, no tool calls",
    ),
    FormatSpec(name="plain", summary="no markup: all output is text"),
)

BY_NAME = {name: spec for spec in FORMATS for name in (spec.name, *spec.aliases)}
