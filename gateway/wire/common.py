"""What all wire types share: the base classes, the encoder, and words that many types use.

Conventions of this package. A field that OpenAI always sends, also as null, is `T | None = None`; a field that it leaves
out is `T | UnsetType = UNSET`. One Struct serves requests and answers: what clients may leave out has a default, and
what the gateway builds is complete. A null from a client counts as left out (see `gateway.wire.decoding`), since SDKs
send their own dumped models back with nulls for all that was never there.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

ENCODER = msgspec.json.Encoder()
"""The one JSON encoder; it keeps no state between calls."""

JsonObject: TypeAlias = dict[str, Any]
"""Free-form JSON, passed on as it came."""

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
    """Base of the wire types that never change once they are built: items, parts, tools, events.

    They are made of JSON, so no reference cycle goes through them, and the garbage collector passes them over.
    """


class Tagged(Value, frozen=True, kw_only=True, tag_field="type"):
    """Base of the members of a union: `type` says which one it is."""


def encode(value: Any) -> bytes:
    """`value` as JSON."""
    return ENCODER.encode(value)


def type_of(value: Tagged | type[Tagged]) -> str:
    """The `type` that a member of a union has on the wire."""
    tag = value.__struct_config__.tag
    assert isinstance(tag, str), "every member of a union has a string tag"
    return tag
