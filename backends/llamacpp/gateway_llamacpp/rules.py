"""A GBNF grammar while it is written: named rules, and expressions over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.errors import Unsupported

_MOST = 2000
"""The highest repetition count that llama.cpp's grammar parser takes."""
_MOST_IN_ALL = 16_000
"""Above it, a repetition that is written out would cost too much memory."""
EMPTY = '""'


class Rules:
    """Rules by name. Expressions are strings that can stand anywhere in a GBNF rule."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}

    def add(self, hint: str, expression: str) -> str:
        """Name `expression`; gives the name."""
        name = self.reserve(hint)
        self._rules[name] = expression
        return name

    def reserve(self, hint: str) -> str:
        """A new name, for a rule that must be referred to before it is written (`define`)."""
        name = f"{hint}-{len(self._rules)}"
        self._rules[name] = EMPTY
        return name

    def define(self, name: str, expression: str) -> None:
        """Write a rule that was reserved."""
        self._rules[name] = expression

    def shared(self, name: str, make: Callable[[], str]) -> str:
        """The rule of this name, made at its first use."""
        if name not in self._rules:
            self._rules[name] = EMPTY
            self._rules[name] = make()
        return name

    def text(self, root: str) -> str:
        """The whole grammar, which starts with the expression `root`."""
        lines = [f"root ::= {root}", *(f"{name} ::= {rule}" for name, rule in self._rules.items())]
        return "\n".join(lines) + "\n"


def sequence(parts: Iterable[str]) -> str:
    """The parts one after the other."""
    written = [part for part in parts if part != EMPTY]
    return " ".join(written) or EMPTY


def one_of(options: Iterable[str]) -> str:
    """Any one of the options."""
    different = list(dict.fromkeys(options))
    return different[0] if len(different) == 1 else "(" + " | ".join(different) + ")"


def repeat(body: str, low: int, high: int | None, *, what: str = "repetition") -> str:
    """`body`, `low` to `high` times (None: without limit). Raises `Unsupported`, naming `what`, for too large counts."""
    if max(low, high or 0) > _MOST_IN_ALL:
        raise Unsupported(f"llamacpp enforces a {what} of at most {_MOST_IN_ALL}.", param="schema")
    body = f"({body})"
    parts = []
    while low > _MOST:
        parts.append(f"{body}{{{_MOST}}}")
        low -= _MOST
        high = None if high is None else high - _MOST
    while high is not None and high > _MOST:
        parts.append(f"{body}{{{low},{_MOST}}}")
        low, high = 0, high - _MOST
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
