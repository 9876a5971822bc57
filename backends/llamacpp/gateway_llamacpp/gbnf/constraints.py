"""Converts constraints to one GBNF grammar, the language of llama.cpp's sampler."""

from __future__ import annotations

from typing import assert_never

from gateway.sdk import Unsupported
from gateway.sdk.constraints import (
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
from gateway_llamacpp.gbnf.characters import char_class, complement, literal, single
from gateway_llamacpp.gbnf.json_schema import SchemaWriter
from gateway_llamacpp.gbnf.json_text import Bounds, JsonRules
from gateway_llamacpp.gbnf.reader import embedded
from gateway_llamacpp.gbnf.regex import regex_to_gbnf
from gateway_llamacpp.gbnf.rules import EMPTY, Rules, one_of, repeat, sequence, words


def to_gbnf(constraint: Constraint, bounds: Bounds | None = None) -> str:
    """A grammar of the outputs that `constraint` allows, or of a subset of them. `bounds` hold for JSON where it has none.

    Raises `Unsupported` for what GBNF cannot express, and `InvalidRequest` for a malformed schema, pattern or grammar.
    """
    if isinstance(constraint, Grammar) and constraint.syntax == "gbnf":
        embedded(constraint.definition, "")
        return constraint.definition
    writer = _Writer(bounds)
    root = writer.write(constraint)
    return writer.text(root)


class _Writer:
    def __init__(self, bounds: Bounds | None) -> None:
        self._rules = Rules()
        self._bounds = bounds
        self._embedded: list[str] = []

    def text(self, root: str) -> str:
        return self._rules.text(root) + "\n".join(self._embedded)

    def write(self, constraint: Constraint) -> str:
        match constraint:
            case Const(text):
                return literal(text) if text else EMPTY
            case JsonSchema(schema):
                # Schemas share the rules of JSON itself, but have separate references.
                return SchemaWriter(self._rules, schema, self._bounds).write()
            case JsonObject():
                return JsonRules(self._rules, self._bounds).object()
            case Regex(pattern):
                return regex_to_gbnf(pattern)
            case Grammar():
                return self._grammar(constraint)
            case FreeText(until):
                return ".*" if until is None else self._until(until, EMPTY, may_end=False)
            case Sequence(parts):
                return sequence(self.write(part) for part in parts)
            case OneOf(options) if all(isinstance(option, Const) for option in options):
                texts = [option.text for option in options if isinstance(option, Const)]
                return words(self._rules, texts)
            case OneOf(options):
                return one_of(self.write(option) for option in options)
            case Repeat(body, low, high):
                return repeat(self._rules.add("body", self.write(body)), low, high)
            case Triggered(trigger, body):
                return self._triggered(trigger, body)
            case _:
                assert_never(constraint)

    def _grammar(self, grammar: Grammar) -> str:
        if grammar.syntax != "gbnf":
            raise Unsupported(
                f"llamacpp reads grammars in GBNF, not in {grammar.syntax}.", param="grammar"
            )
        text, root = embedded(grammar.definition, f"user{len(self._embedded)}-")
        self._embedded.append(text + "\n")
        return root

    def _triggered(self, trigger: str, body: Constraint) -> str:
        if not trigger:
            raise Unsupported("A trigger must have a text.", param="tools")
        rest = self.write(_after(trigger, body))
        return self._until(trigger, rest, may_end=True)

    def _until(self, marker: str, then: str, *, may_end: bool) -> str:
        """Text up to and including the first `marker`, then `then`. With `may_end`, repeated, and the text may end
        anywhere outside.

        There is one rule per length of the marker's prefix that the text ends with (Knuth, Morris and Pratt), so that
        no other parse can miss the marker.
        """
        if not marker:
            return then
        names = [self._rules.reserve("text") for _ in marker]
        alphabet = list(dict.fromkeys(marker))
        others = char_class(complement(single(marker)))
        for at, name in enumerate(names):
            options = [f"{others} {names[0]}"]
            for character in alphabet:
                reached = _reached(marker, at, character)
                if reached == len(marker):
                    after = [then, names[0]] if may_end else [then]
                    options.append(sequence([literal(character), *after]))
                else:
                    options.append(f"{literal(character)} {names[reached]}")
            if may_end:
                options.append(EMPTY)
            self._rules.define(name, " | ".join(options))
        return names[0]


def _reached(marker: str, at: int, character: str) -> int:
    """Length of the prefix of `marker` that the text ends with, after its first `at` characters and `character`."""
    text = marker[:at] + character
    return next(length for length in range(len(text), -1, -1) if text.endswith(marker[:length]))


def _after(trigger: str, body: Constraint) -> Constraint:
    """`body` without the trigger's text, which it starts with."""
    match body:
        case Const(text) if text.startswith(trigger):
            return Const(text.removeprefix(trigger))
        case Sequence((first, *rest)):
            return Sequence((_after(trigger, first), *rest))
        case OneOf(options):
            return OneOf(tuple(_after(trigger, option) for option in options))
        case _:
            raise Unsupported(
                f"A constraint that {trigger!r} triggers must start with that text.", param="tools"
            )
