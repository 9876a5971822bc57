"""Output formats: reasoning and tool calls of model families, one incremental machine per format.

Besides ready formats, `composed` joins the two halves where a model mixes families. Other plugins make formats of their
own from the same parts: a `FormatSpec` of `Reasoning`, `Frame` and a call syntax, made into a `MarkupFormat`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.errors import ConfigurationError
from gateway.hookspecs import MakeFormat, ModelContext, Register, hookimpl
from gateway.protocols.engine import ModelInfo
from gateway.protocols.profile import ModelProfile
from gateway_parsers.families.formats import BY_NAME, FORMATS
from gateway_parsers.families.variants import variant_of
from gateway_parsers.format import MarkupFormat
from gateway_parsers.kit.brace_calls import BraceCalls
from gateway_parsers.kit.header_calls import HeaderCalls
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.python_calls import PythonCalls
from gateway_parsers.kit.tag_calls import TagCalls
from gateway_parsers.profile import profile_of
from gateway_parsers.spec import FormatSpec, Frame, Reasoning

__all__ = [
    "BY_NAME",
    "FORMATS",
    "BraceCalls",
    "FormatConfig",
    "FormatSpec",
    "Frame",
    "HalvesConfig",
    "HeaderCalls",
    "JsonCalls",
    "MarkupFormat",
    "PythonCalls",
    "Reasoning",
    "TagCalls",
    "compose",
]


class FormatConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[models.<model>.<format>]`."""

    start: Literal["text", "reasoning"] | None = None
    """Where an output starts whose prompt does not say; None: as the family has it."""


class HalvesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[models.<model>.composed]`: formats of which one half each is taken."""

    reasoning: str | None = None
    tools: str | None = None
    start: Literal["text", "reasoning"] | None = None


def compose(reasoning: str | None, tools: str | None) -> FormatSpec:
    """The reasoning of one format with the tool calls of another; None: without that half.

    Raises `ConfigurationError` for a name that is not a format with that half.
    """
    marks = calls = frame = None
    if reasoning is not None:
        spec = _half(reasoning, "reasoning")
        marks, frame = spec.reasoning, spec.frame
    if tools is not None:
        spec = _half(tools, "calls")
        calls, frame = spec.calls, frame or spec.frame
    return FormatSpec(
        name=f"{reasoning or 'plain'}+{tools or 'plain'}",
        reasoning=marks,
        calls=calls,
        frame=frame,
    )


def _half(name: str, half: Literal["reasoning", "calls"]) -> FormatSpec:
    spec = BY_NAME.get(name)
    if spec is None or (getattr(spec, half) is None and spec.name != "plain"):
        known = sorted(other for other, spec in BY_NAME.items() if getattr(spec, half) is not None)
        raise ConfigurationError(
            f"There is no format {name!r} with {'tool ' * (half == 'calls')}{half};"
            f" there are: {', '.join(known)}."
        )
    return spec


def _make(spec: FormatSpec, config: FormatConfig, context: ModelContext) -> MarkupFormat:
    spec = variant_of(spec, context.info)
    return MarkupFormat(_started(spec, config.start), context.tokenizer)


def _make_composed(config: HalvesConfig, context: ModelContext) -> MarkupFormat:
    spec = variant_of(compose(config.reasoning, config.tools), context.info)
    return MarkupFormat(_started(spec, config.start), context.tokenizer)


def _started(spec: FormatSpec, start: Literal["text", "reasoning"] | None) -> FormatSpec:
    if start is None or spec.reasoning is None:
        return spec
    marks = msgspec.structs.replace(spec.reasoning, default_start=start)
    return msgspec.structs.replace(spec, reasoning=marks)


@hookimpl
def gateway_register_parsers(register: Register[MakeFormat]) -> None:
    for spec in FORMATS:
        make: Callable[[FormatConfig, ModelContext], MarkupFormat] = partial(_make, spec)
        register(spec.name, make, config=FormatConfig, summary=spec.summary, aliases=spec.aliases)
    register(
        "composed",
        _make_composed,
        config=HalvesConfig,
        summary="the reasoning of one format with the tool calls of another",
    )


@hookimpl
def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
    return profile_of(model)
