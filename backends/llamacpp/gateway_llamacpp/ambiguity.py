"""Estimates how much work a GBNF grammar causes in llama.cpp's sampler, before it is used.

llama.cpp tracks every parse of the text so far, each as a stack of grammar positions, and cannot be interrupted. A
short grammar can have billions of parses. This module simulates that with limits, on sample texts that favour unvisited
positions and growing stacks. The result is an estimate, not a proof: a grammar crafted to be slow on a single long text
may pass.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import TypeAlias

from gateway.sdk import InvalidRequest, Unsupported

MAX_ELEMENTS = 300_000
"""Maximum size of a grammar after llama.cpp expands its repetitions, in elements."""
MAX_WAYS = 3_000
"""Maximum number of alternatives tried for one character."""
MAX_READINGS = 2_000
"""Maximum number of parses of one long token. llama.cpp tries them all for a token that does not fit."""
_MAX_COMPARISONS = 60_000_000
"""Maximum cost of one token: stacks times tokens of the vocabulary."""
_STEPS = 8_000
"""Total number of characters examined."""
_WALK = 128
"""Maximum length of one sample text, in characters."""
_LONG_TOKEN = 16
"""Length of a long token, in characters."""
_IDLE_WALKS = 8
"""Number of consecutive sample texts without new positions that ends the search."""
_TRIED = 4
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

Ranges: TypeAlias = tuple[tuple[int, int], ...]
Element: TypeAlias = "Ranges | int"
"""A set of characters, or the number of a rule."""
Alternatives: TypeAlias = list[list[Element]]
_LAST = 0x10FFFF
_ANY: Ranges = ((0, _LAST),)


class Stack:
    """The state of one parse: an element of an alternative, and the stack below to continue with. Compared by
    identity."""

    __slots__ = ("alternative", "at", "below", "rule")

    def __init__(self, rule: int, alternative: int, at: int, below: Stack | None) -> None:
        self.rule = rule
        self.alternative = alternative
        self.at = at
        self.below = below

    @property
    def place(self) -> tuple[int, int, int]:
        return self.rule, self.alternative, self.at


def check_ambiguity(grammar: str, vocabulary: int) -> None:
    """Raise `InvalidRequest` for a malformed grammar, `Unsupported` for one that would make llama.cpp too slow.

    `vocabulary` is the number of the model's tokens.
    """
    reader = _Reader(grammar, vocabulary)
    rules = reader.read()
    most_stacks = max(64, _MAX_COMPARISONS // max(1, vocabulary))
    _Walker(rules, reader.begins, most_stacks).walk()


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


class _Reader:
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
        tokens = list(self._tokens())
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
                raise InvalidRequest(
                    f"The grammar has no rule named {name!r}.",
                    param="grammar",
                    code="invalid_value",
                )
        return [rule or [[]] for rule in self._rules]

    def _tokens(self) -> Iterator[re.Match[str]]:
        at = 0
        while at < len(self._grammar):
            token = _TOKEN.match(self._grammar, at)
            if token is None:
                raise _malformed(f"{self._grammar[at : at + 20]!r} cannot be read")
            at = token.end()
            if token["space"] is None:
                yield token

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
        if code > _LAST:
            raise _malformed(f"{found[0]} is not a character")
        codes.append(code)
        at = found.end()
    return codes


def _class(text: str) -> Ranges:
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
    characters = _outside(ranges) if negated else tuple(ranges)
    if (negated and not characters) or characters == ((0, 0),):  # llama.cpp cannot write U+0000
        raise _malformed(f"no character is in the class {_shown(text)}")
    return characters


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _outside(ranges: list[tuple[int, int]]) -> Ranges:
    gaps: list[tuple[int, int]] = []
    at = 0
    for low, high in sorted(ranges):
        if low > at:
            gaps.append((at, low - 1))
        at = max(at, high + 1)
    if at <= _LAST:
        gaps.append((at, _LAST))
    return tuple(gaps)


class _Walker:
    """Generates sample texts of a grammar and counts llama.cpp's parses of them."""

    def __init__(self, rules: list[Alternatives], begins: list[int], most_stacks: int) -> None:
        """`begins` are the rules that texts start with, besides the first."""
        self._rules = rules
        self._begins = begins
        self._most_stacks = most_stacks
        self._stacks: dict[tuple[int, int, int, int], Stack] = {}
        self._reached: dict[Stack, list[Stack]] = {}
        self._seen: dict[tuple[int, int, int], int] = {}
        """Visit counts of the positions in the grammar."""
        self._random = random.Random(0)  # noqa: S311  # the same grammar, the same answer

    def walk(self) -> None:
        """Raise `Unsupported` for too many stacks or too many parses of one text."""
        steps = walks = idle = 0
        while steps < _STEPS and idle < _IDLE_WALKS:
            unseen = len(self._seen)
            steps += self._walked(0, _WALK, widens=walks % 2 == 1)
            walks += 1
            idle = 0 if len(self._seen) > unseen else idle + 1
        # Positions that only long texts reach.
        for rule in self._begins:
            self._walked(rule, 2 * _LONG_TOKEN, widens=True)

    def _walked(self, rule: int, length: int, *, widens: bool) -> int:
        """Generate one text that starts with `rule`. Returns its length in characters."""
        self._stacks.clear()
        self._reached.clear()
        live: list[Stack] = []
        for index in range(len(self._rules[rule])):
            live += self._live(self._stack(rule, index, 0, None))
        ways = dict.fromkeys(live, 1)
        for step in range(length):
            if step % _LONG_TOKEN == 0:
                ways = dict.fromkeys(ways, 1)
            self._check(ways)
            if not ways:
                return step
            ways = self._stepped(ways, widens=widens)
        self._check(ways)
        return length

    def _check(self, ways: dict[Stack, int]) -> None:
        if len(ways) > self._most_stacks:
            raise _ambiguous(
                f"{len(ways)} ways to go on after one text, and at most {self._most_stacks} are taken"
            )
        if (number := sum(ways.values())) > MAX_READINGS + len(ways):
            raise _ambiguous(
                f"{number} ways to read one text, and at most {MAX_READINGS} are taken"
            )

    def _stack(self, rule: int, alternative: int, at: int, below: Stack | None) -> Stack:
        """Interns stacks: equal stacks are the same object."""
        key = (rule, alternative, at, id(below))
        found = self._stacks.get(key)
        if found is None:
            found = self._stacks[key] = Stack(rule, alternative, at, below)
        return found

    def _stepped(self, ways: dict[Stack, int], *, widens: bool) -> dict[Stack, int]:
        """The stacks after one more character, with the number of ways to reach each."""
        live = list(ways)
        if widens and len(live) > 1:
            # Choose the character that keeps the most stacks.
            some = live if len(live) <= _TRIED else self._random.sample(live, _TRIED)
            codes = sorted({self._some_code(stack) for stack in some})
            return max((self._after(ways, code) for code in codes), key=lambda w: sum(w.values()))
        least = min(self._seen.get(stack.place, 0) for stack in live)
        rarest = [stack for stack in live if self._seen.get(stack.place, 0) == least]
        chosen = self._random.choice(rarest)
        self._seen[chosen.place] = least + 1
        return self._after(ways, self._some_code(chosen))

    def _some_code(self, stack: Stack) -> int:
        element = self._element(stack)
        assert not isinstance(element, int)
        if not element:
            return -1
        low, high = self._random.choice(element)
        return self._random.randint(low, max(low, high))

    def _element(self, stack: Stack) -> Element:
        return self._rules[stack.rule][stack.alternative][stack.at]

    def _after(self, ways: dict[Stack, int], code: int) -> dict[Stack, int]:
        after: dict[Stack, int] = {}
        for stack, number in ways.items():
            element = self._element(stack)
            assert not isinstance(element, int)
            if any(low <= code <= high for low, high in element):
                next_ = self._stack(stack.rule, stack.alternative, stack.at + 1, stack.below)
                for reached in self._live(next_):
                    after[reached] = after.get(reached, 0) + number
        return after

    def _live(self, stack: Stack) -> list[Stack]:
        """The positions of the next character, starting from `stack`."""
        found = self._reached.get(stack)
        if found is None:
            found = self._reached[stack] = self._advanced(stack)
        return found

    def _advanced(self, start: Stack) -> list[Stack]:
        pending = [start]
        known = {start}
        live: dict[Stack, None] = {}
        while pending:
            stack: Stack | None = pending.pop()
            while stack is not None and stack.at >= len(self._rules[stack.rule][stack.alternative]):
                below = stack.below
                stack = (
                    None
                    if below is None
                    else self._stack(below.rule, below.alternative, below.at + 1, below.below)
                )
            if stack is None:
                continue
            element = self._element(stack)
            if not isinstance(element, int):
                live[stack] = None
                continue
            last = stack.at + 1 == len(self._rules[stack.rule][stack.alternative])
            below = (
                stack.below if last else stack
            )  # as in llama.cpp, tail positions do not grow the stack
            for index in range(len(self._rules[element])):
                new = self._stack(element, index, 0, below)
                if new not in known:
                    known.add(new)
                    pending.append(new)
            if len(known) > MAX_WAYS:
                raise _ambiguous(f"more than {MAX_WAYS} ways to go on after a character")
        return list(live)


def _ambiguous(what: str) -> Unsupported:
    return Unsupported(
        f"llamacpp cannot enforce this: the grammar has {what}, or each token would be slow. Use fewer optional properties, "
        "alternatives that begin alike, and repetitions inside repetitions.",
        param="schema",
    )
