"""Builds a GBNF grammar: named rules, and expressions over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby, takewhile

from gateway.sdk import Unsupported
from gateway_llamacpp.gbnf.characters import literal

_MAX_REPETITIONS = 2000
"""The highest repetition count that llama.cpp's grammar parser accepts."""
_MAX_EXPANDED = 16_000
"""Limit for expanded repetitions, which would otherwise use too much memory."""
EMPTY = '""'


class Rules:
    """Rules by name. Expressions are strings that can stand anywhere in a GBNF rule."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}

    def add(self, hint: str, expression: str) -> str:
        """Add a rule for `expression` and return its name."""
        name = self.reserve(hint)
        self._rules[name] = expression
        return name

    def reserve(self, hint: str) -> str:
        """Reserve a name for a rule that is referenced before `define` writes it."""
        name = f"{hint}-{len(self._rules)}"
        self._rules[name] = EMPTY
        return name

    def define(self, name: str, expression: str) -> None:
        """Define a reserved rule."""
        self._rules[name] = expression

    def shared(self, name: str, make: Callable[[], str]) -> str:
        """The rule of this name, created on first use."""
        if name not in self._rules:
            self._rules[name] = EMPTY
            self._rules[name] = make()
        return name

    def text(self, root: str) -> str:
        """The text of the grammar, which starts with the expression `root`."""
        lines = [f"root ::= {root}", *(f"{name} ::= {rule}" for name, rule in self._rules.items())]
        return "\n".join(lines) + "\n"


_FEW_WORDS = 16
_LEVELS = 64


def words(rules: Rules, texts: Iterable[str]) -> str:
    """One of the texts. Common prefixes are shared, so that llama.cpp tracks few alternatives at once."""
    different = sorted(set(texts))
    if len(different) <= _FEW_WORDS:
        return one_of(map(literal, dict.fromkeys(texts)))
    return _tree(rules, different, 0)


def _tree(rules: Rules, texts: list[str], level: int) -> str:
    if len(texts) == 1:
        return literal(texts[0]) if texts[0] else EMPTY
    if level == _LEVELS:
        return one_of(literal(text) if text else EMPTY for text in texts)
    # They are sorted, so the common prefix of the first and the last is common to all.
    pairs = zip(texts[0], texts[-1], strict=False)
    common = texts[0][: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))]
    groups = [
        list(group) for _, group in groupby(texts, lambda text: text[len(common) : len(common) + 1])
    ]
    options = [_tree(rules, [text[len(common) :] for text in group], level + 1) for group in groups]
    choice = rules.add("words", " | ".join(options))
    return sequence([literal(common) if common else EMPTY, choice])


def sequence(parts: Iterable[str]) -> str:
    """A sequence of the parts."""
    written = [part for part in parts if part != EMPTY]
    return " ".join(written) or EMPTY


def one_of(options: Iterable[str]) -> str:
    """One of the options."""
    different = list(dict.fromkeys(options))
    return different[0] if len(different) == 1 else "(" + " | ".join(different) + ")"


def repeat(body: str, low: int, high: int | None, *, what: str = "repetition") -> str:
    """`body` repeated `low` to `high` times (None: unlimited). Raises `Unsupported`, naming `what`, for excessive
    counts."""
    if max(low, high or 0) > _MAX_EXPANDED:
        raise Unsupported(f"llamacpp enforces a {what} of at most {_MAX_EXPANDED}.", param="schema")
    body = f"({body})"
    parts = []
    while low > _MAX_REPETITIONS:
        parts.append(f"{body}{{{_MAX_REPETITIONS}}}")
        low -= _MAX_REPETITIONS
        high = None if high is None else high - _MAX_REPETITIONS
    while high is not None and high > _MAX_REPETITIONS:
        parts.append(f"{body}{{{low},{_MAX_REPETITIONS}}}")
        low, high = 0, high - _MAX_REPETITIONS
    match (low, high):
        case (_, 0):
            pass
        case (0, None):
            parts.append(f"{body}*")
        case (1, None):
            parts.append(f"{body}+")
        case (1, 1):
            parts.append(body)
        case (0, 1):
            parts.append(f"{body}?")
        case (_, None):
            parts.append(f"{body}{{{low},}}")
        case _:
            parts.append(f"{body}{{{low},{high}}}")
    return sequence(parts)
