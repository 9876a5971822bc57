"""Regular expressions as GBNF.

The dialect is what ECMA-262, Python and Rust have in common: alternation, groups, classes, quantifiers, `.`, the escapes
`\\d \\w \\s` and their opposites (ASCII), and the anchors `^` and `$` at the ends of a branch. What needs memory or a look
around (backreferences, lookahead, word boundaries) raises `Unsupported`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from gateway.sdk import InvalidRequest, Unsupported
from gateway_llamacpp.gbnf.characters import (
    ANY,
    DIGITS,
    LINE,
    SPACE,
    WORD,
    Characters,
    char_class,
    complement,
    single,
    union,
)
from gateway_llamacpp.gbnf.rules import one_of, repeat, sequence


class Chars(Struct, frozen=True):
    """One character of a set."""

    characters: Characters


class Concat(Struct, frozen=True):
    """Expressions that match one after another."""

    parts: tuple[Node, ...]


class Alternation(Struct, frozen=True):
    """Expressions of which one matches."""

    options: tuple[Node, ...]


class Times(Struct, frozen=True):
    """A repetition of the body, `low` to `high` times."""

    body: Node
    low: int
    high: int | None


class Anchor(Struct, frozen=True):
    """`^` or `$`."""

    sign: str


Node: TypeAlias = Chars | Concat | Alternation | Times | Anchor
Emit: TypeAlias = Callable[[Characters], str]
"""Writes one character of a set: verbatim, or escaped for a JSON string."""

_ESCAPES = {
    "d": DIGITS,
    "D": complement(DIGITS),
    "w": WORD,
    "W": complement(WORD),
    "s": SPACE,
    "S": complement(SPACE),
    "n": single("\n"),
    "r": single("\r"),
    "t": single("\t"),
    "f": single("\f"),
    "v": single("\v"),
    "0": single("\0"),
}


def regex_to_gbnf(
    pattern: str, *, emit: Emit = char_class, whole: bool = True, most: int | None = None
) -> str:
    """A GBNF expression of the texts that `pattern` matches: entirely if `whole`, otherwise anywhere. What the pattern repeats
    without an end is repeated `most` times at most (None: any number of times).

    Raises `InvalidRequest` for a malformed pattern and `Unsupported` for one that a grammar cannot express.
    """
    node = _Parser(pattern).parse()
    branches = node.options if isinstance(node, Alternation) else (node,)
    return one_of(_branch(branch, emit, most, whole=whole) for branch in branches)


def _branch(node: Node, emit: Emit, most: int | None, *, whole: bool) -> str:
    parts = list(node.parts) if isinstance(node, Concat) else [node]
    anything = Times(Chars(ANY), 0, None)
    if parts and parts[0] == Anchor("^"):
        parts.pop(0)
    elif not whole:
        parts.insert(0, anything)
    if parts and parts[-1] == Anchor("$"):
        parts.pop()
    elif not whole:
        parts.append(anything)
    return _written(Concat(tuple(parts)), emit, most)


def _written(node: Node, emit: Emit, most: int | None) -> str:
    match node:
        case Chars(characters):
            if not characters:
                raise Unsupported("A pattern has a class that no character is in.", param="pattern")
            return emit(characters)
        case Concat(parts):
            return sequence(_written(part, emit, most) for part in parts)
        case Alternation(options):
            return one_of(_written(option, emit, most) for option in options)
        case Times(body, low, high):
            if high is None and most is not None:
                if _endless(
                    body
                ):  # llama.cpp multiplies repetitions within each other, and limits the product
                    most = min(most, _NESTED)
                high = max(low, most)
            return repeat(_written(body, emit, most), low, high)
        case Anchor(sign):
            raise Unsupported(
                f"llamacpp enforces {sign!r} only at the ends of a pattern.", param="pattern"
            )


_NESTED = 12


def _endless(node: Node) -> bool:
    """Whether it repeats something any number of times."""
    match node:
        case Times(body, _, high):
            return high is None or _endless(body)
        case Concat(parts):
            return any(map(_endless, parts))
        case Alternation(options):
            return any(map(_endless, options))
        case _:
            return False


class _Parser:
    """Recursive descent parser of one pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._pattern):
            raise self._malformed("an unopened ')'")
        return node

    def _malformed(self, what: str) -> InvalidRequest:
        return InvalidRequest(f"The pattern {self._pattern!r} has {what}.", param="pattern")

    def _unsupported(self, what: str) -> Unsupported:
        return Unsupported(
            f"llamacpp cannot enforce {what} (pattern {self._pattern!r}).", param="pattern"
        )

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self._malformed("an end where more must follow")
        self._at += 1
        return character

    def _take(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _choice(self) -> Node:
        options = [self._concat()]
        while self._take("|"):
            options.append(self._concat())
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _concat(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._quantified(self._atom()))
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def _quantified(self, node: Node) -> Node:
        while True:
            bounds = self._quantifier()
            if bounds is None:
                return node
            if isinstance(node, Anchor):
                raise self._malformed("a quantifier with nothing to repeat")
            # Greedy, lazy and possessive quantifiers differ only in search order, which a grammar does not have.
            if not self._take("?"):
                self._take("+")
            node = Times(node, *bounds)

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        if self._pattern.startswith("{,", self._at):
            raise self._unsupported("'{,'")  # a repetition in Python, but text in ECMA-262
        end = self._pattern.find("}", self._at)
        low, comma, high = self._pattern[self._at + 1 : max(end, self._at + 1)].partition(",")
        if end < 0 or not low.isdecimal() or not (high.isdecimal() or not high):
            return None  # the brace is an ordinary character
        self._at = end + 1
        bounds = int(low), int(high) if high else (None if comma else int(low))
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise self._malformed("a repetition whose highest count is below its lowest")
        return bounds

    def _atom(self) -> Node:
        character = self._next()
        match character:
            case ".":
                return Chars(LINE)
            case "^" | "$":
                return Anchor(character)
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case "\\":
                return Chars(self._escape())
            case "*" | "+" | "?":
                raise self._malformed("a quantifier with nothing to repeat")
            case _:
                return Chars(single(character))

    def _group(self) -> Node:
        if self._take("?"):
            if self._take("P<") or (
                self._peek() == "<" and self._pattern[self._at + 1 : self._at + 2] not in "=!"
            ):
                end = self._pattern.find(">", self._at)
                if end < 0:
                    raise self._malformed("a group name without an end")
                self._at = end + 1
            elif not self._take(":"):
                raise self._unsupported(f"'(?{self._peek()}'")
        node = self._choice()
        if not self._take(")"):
            raise self._malformed("a '(' that is not closed")
        return node

    def _class(self) -> Characters:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._member()
            if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member()
                if (
                    len(low) != 1
                    or len(high) != 1
                    or low[0][0] != low[0][1]
                    or low[0][0] > high[0][1]
                ):
                    raise self._malformed("a range in a class that is none")
                ranges.append((low[0][0], high[0][1]))
            else:
                ranges += low
        self._at += 1
        characters = union(ranges)
        return complement(characters) if negated else characters

    def _member(self) -> Characters:
        character = self._next()
        if character == "\\":
            if self._take("b"):
                return single("\b")
            return self._escape()
        if character == "[" and self._peek() == ":":
            raise self._unsupported("a POSIX class")
        return single(character)

    def _escape(self) -> Characters:
        character = self._next()
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character == "x":
            return self._code(2)
        if character == "u":
            if self._take("{"):
                end = self._pattern.find("}", self._at)
                return self._code(end - self._at, closing=True)
            return self._code(4)
        if character.isalnum():
            raise self._unsupported(f"'\\{character}'")
        return single(character)

    def _code(self, digits: int, *, closing: bool = False) -> Characters:
        text = self._pattern[self._at : self._at + max(digits, 0)]
        try:
            code = int(text, 16)
        except ValueError:
            raise self._malformed("an escape without its digits") from None
        if len(text) != digits or code > ANY[-1][1]:
            raise self._malformed("an escape without its digits")
        self._at += digits + closing
        return ((code, code),)
