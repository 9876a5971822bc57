"""Reads GBNF grammars: renames their rules to embed them in others, and parses them as llama.cpp does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from gateway.sdk import InvalidRequest, Unsupported
from gateway_llamacpp.gbnf.characters import LAST, Characters, complement, union

MAX_ELEMENTS = 300_000
"""Maximum size of a grammar after llama.cpp expands its repetitions, in elements."""
_DEEPEST = 200
_REPEATED_MOST = 2_000
_SHOWN = 40
"""Number of characters of a class that an error shows."""

_TOKEN = re.compile(
    r"""
      (?P<space>   (?: \s+ | \#[^\n]* )+ )
    | (?P<name>    [A-Za-z0-9-]+ ) (?P<defines> \s* ::= )?
    | (?P<text>    "(?:\\.|[^"\\])*" )
    | (?P<class>   \[(?:\\.|[^\]\\])*\] )
    | (?P<token>   !?< (?: \[ (?P<number>\d{1,18}) \] | [^>]* ) > )
    | (?P<count>   \{ \s* (?P<low>\d+) \s* (?P<comma>,)? \s* (?P<high>\d+)? \s* \} )
    | (?P<sign>    [()|*+?.] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}

Element: TypeAlias = "Characters | int"
"""A set of characters, or the number of a rule."""
Alternatives: TypeAlias = list[list[Element]]
_ANY: Characters = ((0, LAST),)


class ParsedGrammar(Struct, frozen=True):
    """The rules of a grammar by their numbers; 0 is `root`."""

    rules: list[Alternatives]
    named: list[int]
    """The named rules and groups of the grammar, without the rules made from repetitions."""


def parse(grammar: str, vocabulary: int) -> ParsedGrammar:
    """The rules of `grammar`; repetitions become rules, as in llama.cpp. `vocabulary` is the number of the model's tokens.

    Raises `InvalidRequest` for a malformed grammar and `Unsupported` for one that is too large.
    """
    parser = _Parser(grammar, vocabulary)
    rules = parser.read()
    return ParsedGrammar(rules, parser.begins)


def embedded(definition: str, prefix: str) -> tuple[str, str]:
    """`definition` with `prefix` before each rule's name, and the new name of its `root`.

    Raises `InvalidRequest` if it is malformed or a rule is missing; llama.cpp would report that only when the request runs.
    """
    defined: set[str] = set()
    used = {"root"}
    pieces: list[str] = []
    for token in _tokens(definition):
        if (name := token["name"]) is not None:
            (defined if token["defines"] else used).add(name)
            pieces.append(prefix)
        pieces.append(token[0])
    if missing := sorted(used - defined):
        raise _no_rule(missing[0])
    return "".join(pieces), f"{prefix}root"


def _tokens(grammar: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(grammar):
        token = _TOKEN.match(grammar, at)
        if token is None:
            raise _malformed(f"{grammar[at : at + 20]!r} cannot be read")
        at = token.end()
        yield token


def _no_rule(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"The grammar has no rule named {name!r}.", param="grammar", code="invalid_value"
    )


def _malformed(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"The grammar is not well-formed: {what}.", param="grammar", code="invalid_value"
    )


def _too_large() -> Unsupported:
    return Unsupported(
        f"With its repetitions written out, the grammar has more than {MAX_ELEMENTS} elements, which llamacpp does not take. "
        "Use smaller counts.",
        param="schema",
    )


class _Parser:
    """Parses GBNF into numbered rules. Repetitions become rules, as in llama.cpp."""

    def __init__(self, grammar: str, vocabulary: int) -> None:
        self._grammar = grammar
        self._vocabulary = vocabulary
        self._numbers: dict[str, int] = {}
        self._rules: list[Alternatives | None] = []
        self._elements = 0
        self.begins: list[int] = []
        """The named rules and groups of the grammar, without the rules made from repetitions."""

    def read(self) -> list[Alternatives]:
        tokens = [token for token in _tokens(self._grammar) if token["space"] is None]
        starts = [index for index, token in enumerate(tokens) if token["defines"]]
        if not starts or starts[0] != 0:
            raise _malformed("it does not begin with a rule")
        root = self._number("root")
        for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
            number = self._number(tokens[start]["name"])
            self._rules[number] = self._alternatives(tokens[start + 1 : end])
        assert root == 0
        for name, number in self._numbers.items():
            if self._rules[number] is None:
                raise _no_rule(name)
        return [rule or [[]] for rule in self._rules]

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._rules)
            self.begins.append(len(self._rules))
            self._rules.append(None)
        return self._numbers[name]

    def _add(self, alternatives: Alternatives) -> int:
        self._count(sum(map(len, alternatives)) + len(alternatives))
        self._rules.append(alternatives)
        return len(self._rules) - 1

    def _count(self, elements: int) -> None:
        self._elements += elements
        if self._elements > MAX_ELEMENTS:
            raise _too_large()

    def _alternatives(self, tokens: list[re.Match[str]]) -> Alternatives:
        """Parse the alternatives of a rule. Groups become rules of their own."""
        open_groups: list[Alternatives] = []
        current: Alternatives = [[]]
        begun = [0]  # start of the last item, which a repetition repeats
        begins: list[list[int]] = []
        for token in tokens:
            elements = current[-1]
            if token["name"] is not None:
                begun[-1] = len(elements)
                elements.append(self._number(token["name"]))
            elif token["text"] is not None:
                begun[-1] = len(elements)
                codes = _codes(token["text"][1:-1])
                if 0 in codes:
                    raise _malformed(f"the text {_shown(token['text'])} has the character U+0000")
                elements += [((code, code),) for code in codes]
            elif token["class"] is not None:
                begun[-1] = len(elements)
                elements.append(_class(token["class"]))
            elif token["token"] is not None or token["sign"] == ".":
                if token["number"] is not None and int(token["number"]) >= self._vocabulary:
                    raise _malformed(f"the model has no token {token['token']}")
                begun[-1] = len(elements)
                elements.append(_ANY)
            elif token["count"] is not None:
                low = int(token["low"])
                high = int(token["high"]) if token["high"] else (None if token["comma"] else low)
                self._repeat(elements, begun[-1], low, high)
            elif token["sign"] == "|":
                current.append([])
                begun[-1] = 0
            elif token["sign"] == "(":
                if len(open_groups) >= _DEEPEST:
                    raise _malformed(f"its groups are nested more than {_DEEPEST} levels deep")
                begun[-1] = len(elements)
                open_groups.append(current)
                begins.append(begun)
                current, begun = [[]], [0]
            elif token["sign"] == ")":
                if not open_groups:
                    raise _malformed("it has a ')' without a '('")
                group = self._add(current)
                self.begins.append(group)
                current, begun = open_groups.pop(), begins.pop()
                current[-1].append(group)
            else:
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[token["sign"]]
                self._repeat(elements, begun[-1], low, high)
            self._count(1)
        if open_groups:
            raise _malformed("it has a '(' without a ')'")
        return current

    def _repeat(self, elements: list[Element], begin: int, low: int, high: int | None) -> None:
        if begin >= len(elements):
            if not elements:
                raise _malformed("a repetition has nothing to repeat")
            return  # repetition of an empty text
        if max(low, high or 0) > _REPEATED_MOST:
            raise _malformed(f"a repetition has a count above {_REPEATED_MOST}")
        if high is not None and high < low:
            raise _malformed("a repetition's highest count is below its lowest")
        body = elements[begin:]
        del elements[begin:]
        self._count(len(body) * (high if high is not None else low + 1))
        elements += body * low
        if high is None:
            more = self._add([[], []])
            self._rules[more] = [[*body, more], []]
            elements.append(more)
        elif high > low:
            rest = self._add([body, []])
            for _ in range(high - low - 1):
                rest = self._add([[*body, rest], []])
            elements.append(rest)


def _codes(text: str) -> list[int]:
    codes: list[int] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            codes.append(ord(text[at]))
            at += 1
            continue
        found = _ESCAPE.match(text, at)
        if found is None:
            raise _malformed("an escape has no character")
        digits = found[1] or found[2] or found[3]
        code = int(digits, 16) if digits else ord(_NAMED.get(found[4], found[4]))
        if code > LAST:
            raise _malformed(f"{found[0]} is not a character")
        codes.append(code)
        at = found.end()
    return codes


def _class(text: str) -> Characters:
    """The characters of a class. Raises for one that no character is in: llama.cpp fails where it must write one."""
    inside = text[1:-1]
    negated = inside.startswith("^")
    if negated:
        inside = inside[1:]
    ranges: list[tuple[int, int]] = []
    at = 0
    pieces: list[tuple[int, bool]] = []
    while at < len(inside):
        found = _ESCAPE.match(inside, at) if inside[at] == "\\" else None
        if found is not None:
            pieces.append((_codes(found[0])[0], True))
            at = found.end()
        else:
            pieces.append((ord(inside[at]), False))
            at += 1
    index = 0
    while index < len(pieces):
        low = pieces[index][0]
        if index + 2 < len(pieces) and pieces[index + 1] == (ord("-"), False):
            high = pieces[index + 2][0]
            if high < low:
                raise _malformed(f"a range of the class {_shown(text)} ends before it begins")
            ranges.append((low, high))
            index += 3
        else:
            ranges.append((low, low))
            index += 1
    characters = complement(union(ranges)) if negated else union(ranges)
    if (negated and not characters) or characters == ((0, 0),):  # llama.cpp cannot write U+0000
        raise _malformed(f"no character is in the class {_shown(text)}")
    return characters


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
