"""Definitions shared by all wire types: base classes, the encoder, and common type aliases.

Conventions of this package: a field that OpenAI always sends, even if null, is `T | None = None`; a field that it omits
is `T | UnsetType = UNSET`. One Struct serves requests and answers: fields that clients may omit have a default, and
objects built by the gateway are complete. A null from a client counts as missing (see `gateway.wire.decoding`), because
SDKs send their own dumped models back with nulls for missing fields.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

ENCODER = msgspec.json.Encoder()
"""The only JSON encoder. It keeps no state between calls."""

JsonObject: TypeAlias = dict[str, Any]
"""Free-form JSON, passed on unchanged."""

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
Phase: TypeAlias = Literal["commentary", "final_answer"]
ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Includable: TypeAlias = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]


class Wire(msgspec.Struct, kw_only=True):
    """Base of the mutable wire types: requests, responses and resources."""


class Value(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """Base of the immutable wire types: items, parts, tools, events.

    They consist of JSON values and cannot be part of a reference cycle, so the garbage collector need not track them.
    """


class Tagged(Value, frozen=True, kw_only=True, tag_field="type"):
    """Base of the members of a union, distinguished by `type`."""


def encode(value: Any) -> bytes:
    """`value` as JSON."""
    return ENCODER.encode(value)


def type_of(value: Tagged | type[Tagged]) -> str:
    """The `type` of a union member on the wire."""
    tag = value.__struct_config__.tag
    assert isinstance(tag, str), "every member of a union has a string tag"
    return tag
