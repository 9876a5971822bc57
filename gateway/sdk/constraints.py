"""Output constraints, as passed to engines."""

from gateway.base.constraints import (
    Const,
    Constraint,
    FreeText,
    Grammar,
    JsonObject,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.plugins.protocols.output_constraints import (
    arguments_constraint,
    custom_schema,
    text_constraint,
)

__all__ = [
    "Const",
    "Constraint",
    "FreeText",
    "Grammar",
    "JsonObject",
    "JsonSchema",
    "OneOf",
    "Regex",
    "Repeat",
    "Sequence",
    "Triggered",
    "arguments_constraint",
    "custom_schema",
    "text_constraint",
]
