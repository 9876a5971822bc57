"""Estimates how much work a GBNF grammar causes in llama.cpp's sampler, before it is used.

llama.cpp tracks every parse of the text so far, each as a stack of grammar positions, and cannot be interrupted. A
short grammar can have billions of parses. This module simulates that with limits, on sample texts that favour unvisited
positions and growing stacks. The result is an estimate, not a proof: a grammar crafted to be slow on a single long text
may pass.
"""

from __future__ import annotations

import random

from gateway.sdk import Unsupported
from gateway_llamacpp.gbnf.reader import Alternatives, Element, parse

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
    parsed = parse(grammar, vocabulary)
    most_stacks = max(64, _MAX_COMPARISONS // max(1, vocabulary))
    _Walker(parsed.rules, parsed.named, most_stacks).walk()


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
