"""Making outputs like those of confused models: recorded outputs with random changes, cut at random positions."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from gateway_testing.reading import cut

FRAGMENTS: tuple[str, ...] = (
    *"\"'{}[]()<>/:,=.\\`\n\t |&;*-_", "\n\n", '"a"', "null", "True", "12", "007", "x", "é", "🙂", '", "', '": "', '"}',
    '\\"', "\\u00e9", "\\n", '>"', '{"a": ', '"hi", <b>', " " * 63, " " * 66, "\n" * 131, " " * 420, "k" * 66, "k" * 300,
    '"' + "k" * 64 + '"' + " " * 64,
)  # fmt: skip
"""Texts that are inserted, in addition to a family's markers: syntax, and text that is longer than any lookahead."""


def mutated(random: Random, output: str, markers: Sequence[str]) -> str:
    """`output` with one to four changes."""
    for _ in range(random.randint(1, 4)):
        output = _change(random, output, markers or FRAGMENTS)
    return output


def _change(random: Random, output: str, markers: Sequence[str]) -> str:
    kind = random.random()
    at: int = random.randrange(len(output) + 1)
    before, after = output[:at], output[at:]
    if kind < 0.30:
        return before + after[random.randint(1, 8) :]
    if kind < 0.60:
        return before + random.choice(FRAGMENTS) + after
    if kind < 0.75:
        return before + random.choice(markers) + after
    if kind < 0.85:
        return before + after[: random.randint(1, 30)] + after
    if kind < 0.93:
        marker = random.choice(markers)
        return output.replace(marker, marker[: random.randint(0, len(marker))], 1)
    return before


def cuttings(random: Random, output: str) -> list[list[str]]:
    """Ways in which `output` may arrive: character by character, and in random parts."""
    places = [random.randrange(len(output) + 1) for _ in range(random.randint(1, 12))]
    return [list(output), cut(output, places)]
