"""JSON's own grammar as GBNF, shared by all schemas."""

from __future__ import annotations

from msgspec import Struct

from gateway_llamacpp.gbnf.characters import (
    Characters,
    char_class,
    complement,
    intersection,
    literal,
    single,
    union,
)
from gateway_llamacpp.gbnf.rules import Rules, one_of

_UNESCAPED = complement(union([(0, 0x1F), *single('"\\\x7f')]))
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
_HEX = "[0-9a-fA-F]"
DIGITS_MOST = 15
"""Maximum number of digits of integers that every reader represents exactly."""
NUMBER_TAIL = f'("." [0-9]{{1,{DIGITS_MOST}}})? ([eE] [-+]? [0-9]{{1,2}})?'


class Bounds(Struct, frozen=True):
    """The most of what a constraint does not bound itself."""

    characters: int = 120
    """Of a string, and repetitions of a pattern."""
    items: int = 4
    """Of an array, and properties of an object without named ones."""
    depth: int = 2
    """Of arrays and objects within each other where there is no schema."""


class JsonRules:
    """Adds JSON's rules to a grammar as they are used."""

    def __init__(self, rules: Rules, bounds: Bounds | None = None) -> None:
        """With `bounds`, every value comes to an end."""
        self._rules = rules
        self._bounds = bounds

    def space(self) -> str:
        """White space between tokens: none, a space, or a line break with indentation. Bounded, so that a weak model
        cannot emit it endlessly."""
        return self._rules.shared("ws", lambda: '("" | " " | "\\n" [ \\t]{0,20})')

    def char(self) -> str:
        """One character of a string. Escaped surrogates occur in pairs, as RFC 8259 requires."""
        return self._rules.shared(
            "char",
            lambda: (
                f'{char_class(_UNESCAPED)} | "\\\\" (["\\\\/bfnrt] | "u" ([0-9a-cA-CefEF] {_HEX}{{3}} | '
                f'[dD] [0-7] {_HEX}{{2}} | [dD] [89abAB] {_HEX}{{2}} "\\\\u" [dD] [c-fC-F] {_HEX}{{2}}))'
            ),
        )

    def string(self) -> str:
        times = f"{{0,{self._bounds.characters}}}" if self._bounds else "*"
        return self._rules.shared("string", lambda: f'"\\"" {self.char()}{times} "\\""')

    def integer(self) -> str:
        return self._rules.shared(
            "integer", lambda: f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS_MOST - 1}}})'
        )

    def number(self) -> str:
        return self._rules.shared("number", lambda: f"{self.integer()} {NUMBER_TAIL}")

    def value(self) -> str:
        """Any JSON value."""
        return self._value(self._bounds.depth if self._bounds else None)

    def object(self) -> str:
        """Any JSON object."""
        return self._object(self._bounds.depth if self._bounds else None)

    def _value(self, depth: int | None) -> str:
        """`depth` is how many levels may follow; None: any number."""
        inner = [] if depth == 0 else [self._object, self._array]
        below = None if depth is None else depth - 1
        return self._rules.shared(
            "value" if depth is None else f"value{depth}",
            lambda: one_of(
                [
                    *(write(below) for write in inner),
                    self.string(),
                    self.number(),
                    '"true"',
                    '"false"',
                    '"null"',
                ]
            ),
        )

    def _object(self, depth: int | None) -> str:
        return self._rules.shared(
            "object" if depth is None else f"object{depth}",
            lambda: self.pairs(self.string(), self._value(depth), 0, None),
        )

    def _array(self, depth: int | None) -> str:
        ws = self.space()

        def write() -> str:
            value = self._value(depth)
            times = f"{{0,{self._bounds.items - 1}}}" if self._bounds else "*"
            return f'"[" {ws} ({value} ("," {ws} {value}){times})? {ws} "]"'

        return self._rules.shared("array" if depth is None else f"array{depth}", write)

    def pairs(self, key: str, value: str, low: int, high: int | None) -> str:
        """An object of `low` (0 or 1) to `high` pairs with any names."""
        ws = self.space()
        if high is None and self._bounds is not None:
            high = self._bounds.items
        if high == 0:
            return f'"{{" {ws} "}}"'
        pair = f'{key} ":" {ws} {value}'
        more = "*" if high is None else f"{{0,{high - 1}}}"
        inside = f'{pair} ("," {ws} {pair}){more}'
        return f'"{{" {ws} ' + (inside if low else f"({inside})?") + f' {ws} "}}"'


def in_string(characters: Characters) -> str:
    """One character of a set inside a JSON string. Control characters without a short escape are excluded if the set
    has other characters."""
    options = []
    plain = intersection(characters, _UNESCAPED)
    if plain:
        options.append(char_class(plain))
    for character, escape in _SHORT.items():
        if intersection(characters, single(character)):
            options.append(literal(escape))
    if not options:
        options += [
            literal(f"\\u{code:04x}") for low, high in characters for code in range(low, high + 1)
        ]
    return one_of(options)
