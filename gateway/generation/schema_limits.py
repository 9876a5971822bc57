"""Checks of a request's schemas, patterns and grammars: their sizes, and whether schemas are valid JSON Schema. They
are made before any other processing.

The checks are linear and do not follow references: a schema with nesting, references or repetition is measured as
written. The engine limits the time to compile it (`gateway.engines.compiling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gateway.base.caches import LruCache
from gateway.base.constraints import (
    Const,
    Constraint,
    FreeText,
    Grammar,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.base.errors import InvalidRequest, ParamPath, param_text
from gateway.base.json_schema import invalid_place, measure
from gateway.config import SchemaLimits
from gateway.generation.error_params import TEXT_SCHEMA
from gateway.plugins.protocols import ToolDefinition, Turn

CODE = "schema_too_large"

_KEPT: Final = 4 << 20
_LONGEST_KEPT: Final = 1 << 18
_passed = LruCache[tuple[object, ...], int](max_size=_KEPT)
"""The sizes of lists of tools that passed the checks, by everything that the result depends on. Agents send the same
tools with each request."""


def check_limits(
    turn: Turn,
    structure: Constraint | None,
    tool_params: Mapping[str, ParamPath],
    limits: SchemaLimits,
) -> None:
    """Raise `InvalidRequest`, naming the parameter and the limit, if a constraint of the turn exceeds the limits.

    `structure`, if given, is the constraint on the final text, and replaces the turn's text format.
    """
    size = 0
    if structure is not None:
        size += _check(structure, limits, TEXT_SCHEMA)
        for schema in _schemas(structure):
            _check_validity(schema, TEXT_SCHEMA, "invalid_json_schema")
    elif turn.text_format.schema is not None:
        size += _check(JsonSchema(turn.text_format.schema), limits, TEXT_SCHEMA)
        _check_validity(turn.text_format.schema, TEXT_SCHEMA, "invalid_json_schema")
    if not turn.tools:
        return
    key, length = _key_of(turn, tool_params, limits)
    known = None if key is None else _passed.get(key)
    if known is not None and size + known <= limits.max_bytes:
        return
    before = size
    for tool in turn.tools:
        param = tool_params.get(tool.name)
        size += _check_tool(tool, limits, param or ("tools",), own=param is not None)
        if size > limits.max_bytes:
            raise _too_large(
                "All schemas, patterns and grammars of the request together", "bytes", size,
                limits.max_bytes, "max_bytes", ("tools",),
            )  # fmt: skip
    if key is not None:
        _passed.put(key, size - before, length)


def _key_of(
    turn: Turn, tool_params: Mapping[str, ParamPath], limits: SchemaLimits
) -> tuple[tuple[object, ...] | None, int]:
    """Return the cache key of the turn's tools and its size in bytes; None and 0 for tools that are not cached.

    The key contains everything that the result of the checks depends on, and the `cache_scope` of the request.
    Otherwise other principals could learn from the duration of a request which tools were sent before.
    """
    if turn.cache_scope is None or any(tool.grammar is not None for tool in turn.tools):
        return None, 0
    try:
        written = msgspec.json.encode(
            [(tool.name in tool_params, tool.parameters) for tool in turn.tools]
        )
    except RecursionError:  # nested too deeply; the check reports it
        return None, 0
    if len(written) > _LONGEST_KEPT:
        return None, 0
    return (turn.cache_scope, limits, written), len(written) + 2 * len(turn.cache_scope) + 500


def _check_tool(tool: ToolDefinition, limits: SchemaLimits, param: ParamPath, *, own: bool) -> int:
    """Check a tool. Returns its size in bytes. `own`: whether the tool comes from the request. The schemas of tool
    servers are not checked for validity."""
    try:
        size = 0
        if tool.parameters:
            size += _check(JsonSchema(tool.parameters), limits, param)
            if own:
                _check_validity(tool.parameters, param, "invalid_function_parameters")
        if tool.grammar is not None:
            size += _check(tool.grammar, limits, param)
    except InvalidRequest as error:
        error.message = f"Tool '{tool.name}': {error.message}"
        raise
    return size


def _check(constraint: Constraint, limits: SchemaLimits, param: ParamPath) -> int:
    """Check a schema, a pattern, a grammar or a choice. Returns its size in bytes."""
    match constraint:
        case JsonSchema(schema):
            return _check_schema(schema, limits, param)
        case Regex(pattern):
            size = len(pattern.encode())
            if size > limits.max_pattern_bytes:
                raise _too_large(
                    "The pattern", "bytes", size, limits.max_pattern_bytes, "max_pattern_bytes", param
                )  # fmt: skip
            return size
        case Grammar(_, definition):
            size = len(definition.encode())
            if size > limits.max_grammar_bytes:
                raise _too_large(
                    "The grammar", "bytes", size, limits.max_grammar_bytes, "max_grammar_bytes", param
                )  # fmt: skip
            return size
        case OneOf(options):
            if len(options) > limits.max_enum_values:
                raise _too_large(
                    "The choice", "options", len(options), limits.max_enum_values,
                    "max_enum_values", param,
                )  # fmt: skip
            size = sum(len(option.text.encode()) for option in options if isinstance(option, Const))
            size += sum(_check(option, limits, param) for option in options if not isinstance(option, Const))  # fmt: skip
            if size > limits.max_bytes:
                raise _too_large("The choice", "bytes", size, limits.max_bytes, "max_bytes", param)
            return size
        case Sequence(parts):
            size = sum(_check(part, limits, param) for part in parts)
            if size > limits.max_bytes:
                raise _too_large(
                    "The structural tag", "bytes", size, limits.max_bytes, "max_bytes", param
                )
            return size
        case Const(text):
            return len(text.encode())
        case Repeat(body, _, _):
            return _check(body, limits, param)
        case Triggered(trigger, body):
            return len(trigger.encode()) + _check(body, limits, param)
        case FreeText(str(until)):
            return len(until.encode())
        case _:
            return 0


def _schemas(constraint: Constraint) -> Iterator[Mapping[str, Any]]:
    match constraint:
        case JsonSchema(schema):
            yield schema
        case Sequence(inside) | OneOf(inside):
            for each in inside:
                yield from _schemas(each)
        case Repeat(body, _, _) | Triggered(_, body):
            yield from _schemas(body)
        case _:
            pass


def _check_schema(schema: Mapping[str, Any], limits: SchemaLimits, param: ParamPath) -> int:
    counts = measure(schema, max_depth=limits.max_depth)
    if counts is None:
        raise InvalidRequest(
            f"The JSON schema is nested more than {limits.max_depth} levels deep, the limit of this server "
            "(max_depth). Make it flatter, or refer to parts of it with $ref.",
            param=param,
            code=CODE,
        )
    for what, number, bound, key in (
        ("properties", counts.properties, limits.max_properties, "max_properties"),
        ("enumeration values", counts.enum_values, limits.max_enum_values, "max_enum_values"),
        ("members of anyOf, oneOf and allOf", counts.alternatives, limits.max_alternatives, "max_alternatives"),
        ("bytes in its patterns", counts.pattern_bytes, limits.max_pattern_bytes, "max_pattern_bytes"),
    ):  # fmt: skip
        if number > bound:
            raise _too_large("The JSON schema", what, number, bound, key, param)
    size = len(msgspec.json.encode(schema))
    if size > limits.max_bytes:
        raise _too_large("The JSON schema", "bytes", size, limits.max_bytes, "max_bytes", param)
    return size


def _check_validity(schema: Mapping[str, Any], param: ParamPath, code: str) -> None:
    """Raise `InvalidRequest`, naming the position, for a schema that is not valid JSON Schema."""
    if (found := invalid_place(schema)) is not None:
        raise InvalidRequest(
            f"Invalid schema: at '{param_text(found.path)}', {found.problem}",
            param=(*param, *found.path),
            code=code,
        )


def _too_large(
    subject: str, what: str, number: int, bound: int, key: str, param: ParamPath
) -> InvalidRequest:
    return InvalidRequest(
        f"{subject} has {number} {what}; this server takes at most {bound} ({key}). Make it smaller.",
        param=param,
        code=CODE,
    )
