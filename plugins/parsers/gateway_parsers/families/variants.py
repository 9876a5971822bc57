"""Selects between versions of a family's format by the model's chat template."""

from __future__ import annotations

import re

from msgspec.structs import replace

from gateway.sdk import ModelInfo
from gateway_parsers.families.header_calls import MISTRAL
from gateway_parsers.families.json_calls import MISTRAL_LIST
from gateway_parsers.families.tag_calls import hy_v3, hy_v4
from gateway_parsers.spec import FormatSpec

_SUFFIX = re.compile(r"<tool_calls(:[0-9A-Za-z]+)>")


def variant_of(spec: FormatSpec, model: ModelInfo) -> FormatSpec:
    """`spec` as this model writes it. Reading is the same for all variants, except for the suffixes of Hunyuan's
    tokens."""
    template = model.chat_template or ""
    if spec.calls is MISTRAL and "[TOOL_CALLS]" in template and "[ARGS]" not in template:
        return replace(spec, calls=MISTRAL_LIST)
    suffix = _SUFFIX.search(template)
    hunyuan = {"hy_v3": hy_v3, "hy_v4": hy_v4}.get(spec.name)
    if hunyuan is not None and suffix is not None and spec.reasoning is not None:
        marks = replace(spec.reasoning, open=f"<think{suffix[1]}>", close=f"</think{suffix[1]}>")
        return replace(spec, calls=hunyuan(suffix[1]), reasoning=marks)
    return spec
