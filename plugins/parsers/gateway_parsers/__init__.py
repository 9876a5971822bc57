"""Output formats: reasoning and tool calls of model families, with one incremental machine per format.

Besides the built-in formats, `composed` combines the reasoning and the calls of two families. Other plugins can build
formats from the same parts: a `FormatSpec` of `ReasoningMarkers`, `Frame` and a call syntax, wrapped in a `MarkupFormat`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from itertools import chain
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.sdk import (
    ConfigurationError,
    MakeFormat,
    ModelContext,
    ModelInfo,
    ModelProfile,
    Register,
    hookimpl,
)
from gateway_parsers.families.formats import BY_NAME, FORMATS
from gateway_parsers.families.variants import variant_of
from gateway_parsers.format import MarkupFormat
from gateway_parsers.kit.brace_calls import BraceCalls
from gateway_parsers.kit.header_calls import HeaderCalls
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.python_calls import PythonCalls
from gateway_parsers.kit.tag_calls import TagCalls
from gateway_parsers.profile import profile_of
from gateway_parsers.response_template import ResponseTemplateConfig, spec_of_template
from gateway_parsers.spec import Component, FormatSpec, Frame, ReasoningMarkers

__all__ = [
    "BY_NAME",
    "FORMATS",
    "BraceCalls",
    "ComposedConfig",
    "FormatConfig",
    "FormatSpec",
    "Frame",
    "HeaderCalls",
    "JsonCalls",
    "MarkupFormat",
    "PythonCalls",
    "ReasoningMarkers",
    "TagCalls",
    "compose",
]


class FormatConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[models.<model>.<format>]`."""

    start: Literal["text", "reasoning"] | None = None
    """Where an output starts if the prompt does not determine it; None: the family's default."""


class ComposedConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[models.<model>.composed]`: the formats that provide the reasoning and the calls."""

    reasoning: str | None = None
    tools: str | None = None
    start: Literal["text", "reasoning"] | None = None


def compose(reasoning: str | None, tools: str | None, model: ModelInfo | None = None) -> FormatSpec:
    """Combine the reasoning of one format with the tool calls of another; None omits that component.

    The components are of the version that `model` needs. Hidden markup and turn ends are those of both. Raises
    `ConfigurationError` if a name is not a format with that component.
    """
    name = f"{reasoning or 'plain'}+{tools or 'plain'}"
    wanted: tuple[tuple[str | None, Component], ...] = ((reasoning, "reasoning"), (tools, "calls"))
    specs = [_spec_with(name, component) for name, component in wanted if name is not None]
    if model is not None:
        specs = [variant_of(spec, model) for spec in specs]
    reasoner = specs[0] if reasoning is not None else None
    tool_caller = specs[-1] if tools is not None else None
    return FormatSpec(
        name=name,
        reasoning=reasoner.reasoning if reasoner is not None else None,
        calls=tool_caller.calls if tool_caller is not None else None,
        frame=next((spec.frame for spec in specs if spec.frame is not None), None),
        hidden=_merged(spec.hidden for spec in specs),
        hidden_tags=_merged(spec.hidden_tags for spec in specs),
        cites=any(spec.cites for spec in specs),
        turn_ends=_merged(spec.turn_ends for spec in specs),
        lead=reasoner.lead if reasoner is not None else "",
        plain_newlines=any(spec.plain_newlines for spec in specs),
    )


def _merged(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(groups)))


def _spec_with(name: str, component: Component) -> FormatSpec:
    spec = BY_NAME.get(name)
    if spec is None or not (spec.has(component) or spec.name == "plain"):
        known = sorted(other for other, spec in BY_NAME.items() if spec.has(component))
        near = get_close_matches(name, known, n=1)
        hint = f' Did you mean "{near[0]}"?' if near else ""
        raise ConfigurationError(
            f"There is no format {name!r} with {'tool ' * (component == 'calls')}{component}.{hint}"
            f" There are: {', '.join(known)}."
        )
    return spec


def _make(spec: FormatSpec, config: FormatConfig, context: ModelContext) -> MarkupFormat:
    spec = variant_of(spec, context.info)
    return MarkupFormat(_started(spec, config.start), context.tokenizer)


def _make_composed(config: ComposedConfig, context: ModelContext) -> MarkupFormat:
    spec = compose(config.reasoning, config.tools, context.info)
    return MarkupFormat(_started(spec, config.start), context.tokenizer)


def _make_from_template(config: ResponseTemplateConfig, context: ModelContext) -> MarkupFormat:
    return MarkupFormat(spec_of_template(config, context.info), context.tokenizer)


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
        "hf",
        _make_from_template,
        config=ResponseTemplateConfig,
        aliases=("response_template",),
        summary="the response template in the model's files (Transformers, vLLM's parser hf)",
    )
    register(
        "composed",
        _make_composed,
        config=ComposedConfig,
        summary="the reasoning of one format with the tool calls of another",
    )


@hookimpl
def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
    return profile_of(model)
