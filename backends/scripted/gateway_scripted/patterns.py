"""Generating a short text that matches a regular expression."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

# CPython's own regular expression parser. It has no public name, but any alternative would be a second parser of the
# same language. The generated text is checked with `re` before it is returned.
_parser: Any = importlib.import_module("re._parser")
_MAX_LENGTH = 4096
_MAX_NODES = 20_000
"""Maximum number of nodes of the pattern that are written, for all attempts together."""
_FILLERS = "aA0 _-.!é"


def shortest_match(pattern: str, *, at_least: int = 0, search: bool = False) -> str | None:
    """A short text that `pattern` matches as a whole, or anywhere in it if `search`; None if none is found.

    It has at least `at_least` characters. The pattern uses Python's syntax, from which JSON schema patterns rarely
    differ.
    """
    try:
        tree = _parser.parse(pattern)
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    if at_least > _MAX_LENGTH:
        return None
    test = compiled.search if search else compiled.fullmatch
    budget = iter(range(_MAX_NODES))
    for extra in range(at_least + 1):
        try:
            text = _Writer(extra, budget).sequence(tree)
        except (_DeadEnd, RecursionError):
            return None
        if len(text) > _MAX_LENGTH:
            return None
        missing = max(0, at_least - len(text))
        for candidate in (text, text + "a" * missing, "a" * missing + text) if search else (text,):
            if len(candidate) >= at_least and test(candidate):
                return candidate
    return None


class _DeadEnd(Exception):
    """No text can be generated for a node."""


class _Writer:
    """Writes the shortest text of the tree; repetitions get up to `extra` additional rounds. Takes one of `budget` for each node."""

    def __init__(self, extra: int, budget: Iterator[int]) -> None:
        self._extra = extra
        self._budget = budget
        self._groups: dict[int, str] = {}

    def sequence(self, nodes: Iterable[tuple[Any, Any]]) -> str:
        text = "".join(self._node(str(operation), argument) for operation, argument in nodes)
        if len(text) > _MAX_LENGTH:  # references to groups double it
            raise _DeadEnd("too long")
        return text

    def _node(self, operation: str, argument: Any) -> str:
        if next(self._budget, None) is None:
            raise _DeadEnd("too long")
        match operation:
            case "LITERAL":
                return chr(argument)
            case "NOT_LITERAL":
                return next(c for c in _FILLERS if ord(c) != argument)
            case "ANY":
                return "a"
            case "IN":
                return self._member(argument)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, body = argument
                rounds = min(least + self._extra, int(most), _MAX_LENGTH)
                return "".join(self.sequence(body) for _ in range(rounds))
            case "SUBPATTERN":
                group, _, _, body = argument
                text = self.sequence(body)
                if group is not None:
                    self._groups[group] = text
                return text
            case "ATOMIC_GROUP":
                return self.sequence(argument)
            case "BRANCH":
                return self.sequence(argument[1][0])
            case "GROUPREF":
                return self._groups.get(int(argument), "")
            case "AT" | "ASSERT" | "ASSERT_NOT":
                return ""
            case _:
                raise _DeadEnd(operation)

    def _member(self, members: list[tuple[Any, Any]]) -> str:
        """A character of a set: its first one, or for a negated set the first common character that is not in it."""
        negated = str(members[0][0]) == "NEGATE"
        if not negated:
            return self._example(*members[0])
        candidates: list[str] = [*_FILLERS, *map(chr, range(33, 0x250))]
        for candidate in candidates:
            if not any(_contains(str(o), a, candidate) for o, a in members[1:]):
                return candidate
        raise _DeadEnd("a set without members")

    def _example(self, operation: Any, argument: Any) -> str:
        match str(operation):
            case "LITERAL":
                return chr(argument)
            case "RANGE":
                return chr(argument[0])
            case "CATEGORY":
                for candidate in _FILLERS:
                    if _contains("CATEGORY", argument, candidate):
                        return candidate
        raise _DeadEnd(str(operation))


def _contains(operation: str, argument: Any, character: str) -> bool:
    match operation:
        case "LITERAL":
            return ord(character) == int(argument)
        case "RANGE":
            return int(argument[0]) <= ord(character) <= int(argument[1])
        case "CATEGORY":
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(argument).rsplit("_", 1)[1]]
            if "_NOT_" in str(argument):
                letter = letter.upper()
            return re.fullmatch("\\" + letter, character) is not None
    return False
