"""Translating a constraint tree for engines with xgrammar, to a schema, a pattern, a grammar or a structural tag."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, assert_never

from msgspec import Struct

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
from gateway.base.errors import Unsupported
from gateway.engines.json_schemas import bounds_lengths, unenforced_keyword
from gateway.engines.triggers import after_trigger

Format = dict[str, Any]
"""A format of xgrammar's structural tags, as JSON."""
_SPELT_OUT = 32
"""Maximum number of repetitions that are written out one by one, if the repeated part contains special tokens."""


class Enforcement(Struct, frozen=True, kw_only=True):
    """The engine properties that the translation depends on."""

    backend: Literal["xgrammar", "guidance"] = "xgrammar"
    max_json_whitespace: int | None = None
    special: Mapping[str, int] = {}
    """Ids of the special tokens, by their text."""
    ending: frozenset[int] = frozenset()
    """Ids that end an output."""
    takes_lark: bool = True
    """Whether a constraint that consists of one grammar may be in the Lark syntax."""
    lark_to_ebnf: Callable[[str], str]
    schema_to_ebnf: Callable[[Mapping[str, Any], int | None], str]
    """Both functions raise ValueError for input that they cannot read. The integer is `max_json_whitespace`."""


def structured_outputs(constraint: Constraint, by: Enforcement) -> dict[str, Any] | None:
    """The keyword arguments of vLLM's `StructuredOutputsParams`, which TensorRT-LLM's `GuidedDecodingParams` shares;
    None if anything is allowed.

    Raises `Unsupported`, naming the part that cannot be enforced.
    """
    if constraint == FreeText():
        return None
    if by.backend == "xgrammar":
        _refuse_dropped(constraint)
    single = _single(constraint, by)
    if single is not None:
        return single
    if by.backend != "xgrammar":
        raise Unsupported(
            f'vLLM\'s structured outputs backend "{by.backend}" enforces single schemas, patterns and grammars, not '
            f'{type(constraint).__name__}; "xgrammar" does.'
        )
    tag = {"type": "structural_tag", "format": _format(constraint, by)}
    return {"structural_tag": json.dumps(tag)}


def unwanted_special_tokens(constraint: Constraint, by: Enforcement) -> list[int]:
    """The ids of the special tokens that the constraint does not contain.

    xgrammar treats each token as its text, so `<|im_start|>` would be allowed in any JSON string. If special tokens are
    then removed from the text, the string differs from the one that was checked.
    """
    literals = "\0".join(_literals(constraint))
    return [
        token_id
        for text, token_id in by.special.items()
        if token_id not in by.ending and text not in literals
    ]


def _single(constraint: Constraint, by: Enforcement) -> dict[str, Any] | None:
    """The arguments for the kinds of constraint that the engines support directly; None for other kinds."""
    guidance = by.backend == "guidance"
    unbounded = by.max_json_whitespace is None
    match constraint:
        case JsonSchema(schema) if guidance or (unbounded and not bounds_lengths(schema)):
            return {"json": schema}
        case JsonObject() if guidance or unbounded:
            return {"json_object": True}
        case Regex(pattern):
            return {"regex": _pattern(pattern, by)}
        case Grammar("lark", definition) if by.takes_lark and (guidance or "::=" not in definition):
            # vLLM distinguishes the two syntaxes by this sign.
            return {"grammar": definition}
        case Grammar("gbnf", definition):
            return {"grammar": definition}
        case OneOf(options) if guidance and options:
            texts = [option.text for option in options if isinstance(option, Const)]
            return {"choice": texts} if len(texts) == len(options) else None
        case Const(text) if guidance:
            return {"choice": [text]}
    return None


def _format(node: Constraint, by: Enforcement) -> Format:
    inside = partial(_format, by=by)
    match node:
        case Const(text):
            return _const(text, by)
        case JsonSchema(schema):
            return _json(schema, by)
        case JsonObject():
            return _json({"type": "object"}, by)
        case Regex(pattern):
            return {"type": "regex", "pattern": _pattern(pattern, by)}
        case Grammar("lark", definition):
            try:
                return {"type": "grammar", "grammar": by.lark_to_ebnf(definition)}
            except ValueError as error:
                raise Unsupported(f"The Lark grammar cannot be enforced: {error}") from error
        case Grammar(_, definition):
            return {"type": "grammar", "grammar": definition}
        case FreeText(None):
            return {"type": "any_text"}
        case FreeText(until):
            free = {"type": "any_text", "excludes": [until]}
            return _sequence([free, _const(until or "", by)])
        case Sequence(parts):
            return _sequence(list(map(inside, parts)))
        case OneOf(()):
            raise Unsupported("A choice without options cannot be enforced.")
        case OneOf((option,)):
            return inside(option)
        case OneOf(options):
            return {"type": "or", "elements": list(map(inside, options))}
        case Repeat(_, _, 0):
            return _const("", by)
        case Repeat(body, least, most):
            return _repeated(inside(body), least, most)
        case Triggered(trigger, body):
            return {
                "type": "dispatch",
                "rules": [[trigger, inside(after_trigger(body, trigger))]],
                "loop": True,
            }
        case _:
            assert_never(node)


def _repeated(content: Format, least: int, most: int | None) -> Format:
    match least, most:
        case 0, 1:
            return {"type": "optional", "content": content}
        case 0, None:
            return {"type": "star", "content": content}
        case 1, None:
            return {"type": "plus", "content": content}
    if _has_token(content) and max(least, most or 0) <= _SPELT_OUT:
        # Token formats inside `repeat` can crash vLLM's engine (xgrammar 0.2.8).
        rest = _sequence([])
        if most is None:
            rest = {"type": "star", "content": content}
        for _ in range((most or least) - least):
            rest = {"type": "optional", "content": _sequence([content, rest])}
        return _sequence([*[content] * least, rest])
    return {"type": "repeat", "min": least, "max": -1 if most is None else most, "content": content}


def _has_token(made: Format) -> bool:
    inside = [*made.get("elements", ()), *(rule[1] for rule in made.get("rules", ()))]
    if "content" in made:
        inside.append(made["content"])
    return made["type"] == "token" or any(map(_has_token, inside))


def _json(schema: Mapping[str, Any], by: Enforcement) -> Format:
    if bounds_lengths(schema):
        # Not with xgrammar's direct conversion from schema to tokens; see `grammars`.
        return {"type": "grammar", "grammar": by.schema_to_ebnf(schema, by.max_json_whitespace)}
    made: Format = {"type": "json_schema", "json_schema": schema}
    if by.max_json_whitespace is not None:
        made["max_whitespace_cnt"] = by.max_json_whitespace
    return made


def _sequence(elements: list[Format]) -> Format:
    flat: list[Format] = []
    for element in elements:
        flat += element["elements"] if element["type"] == "sequence" else [element]
    flat = [element for element in flat if element != {"type": "const_string", "value": ""}]
    if not flat:
        return {"type": "const_string", "value": ""}
    return flat[0] if len(flat) == 1 else {"type": "sequence", "elements": flat}


def _const(text: str, by: Enforcement) -> Format:
    """The format of a fixed text. Special tokens in it match as tokens, not as their text."""
    for special, token_id in by.special.items():
        if special not in text:
            continue
        if token_id in by.ending:
            raise Unsupported(
                f"'{special}' ends this model's output, so that it cannot be enforced inside."
            )
        before, after = text.split(special, 1)
        token: Format = {"type": "token", "token": token_id}
        return _sequence([_const(before, by), token, _const(after, by)])
    return {"type": "const_string", "value": text}


def _pattern(pattern: str, by: Enforcement) -> str:
    """Adapt a pattern: xgrammar's `.` also matches line ends."""
    if by.backend != "xgrammar" or "." not in pattern:
        return pattern
    made: list[str] = []
    escaped = in_class = False
    for character in pattern:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character == ".":
            character = r"[^\n]"
        made.append(character)
    return "".join(made)


def nodes(constraint: Constraint) -> Iterator[Constraint]:
    """The nodes of the tree, each parent before its children."""
    yield constraint
    match constraint:
        case Sequence(parts) | OneOf(parts):
            for part in parts:
                yield from nodes(part)
        case Repeat(body) | Triggered(_, body):
            yield from nodes(body)


def _literals(constraint: Constraint) -> Iterator[str]:
    for node in nodes(constraint):
        match node:
            case Const(text) | Regex(text) | Grammar(_, text) | Triggered(text):
                yield text
            case FreeText(str(until)):
                yield until
            case JsonSchema(schema):
                yield json.dumps(schema, ensure_ascii=False)


def _refuse_dropped(constraint: Constraint) -> None:
    for node in nodes(constraint):
        if (
            isinstance(node, JsonSchema)
            and (keyword := unenforced_keyword(node.schema)) is not None
        ):
            raise UnenforceableSchemaError(node, keyword)


class UnenforceableSchemaError(Unsupported):
    """A schema of the tree contains something that the backend cannot enforce."""

    def __init__(self, node: JsonSchema, keyword: str) -> None:
        super().__init__(f"The JSON schema's {keyword} cannot be enforced by this engine.")
        self.node = node
