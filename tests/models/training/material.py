"""Random words, names, numbers and casings: what the synthetic dialogues are filled with."""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import words

T = TypeVar("T")
Casing = Callable[[str], str]


def _parts(text: str) -> list[str]:
    return text.split(" ")


_ONSETS = _parts(
    "b c d f g h j k l m n p r s t v w z br ch cl dr fl gr kr pl qu sh sk sp st th tr x y "
)
_VOWELS = _parts("a e i o u a e i o ai ea ee ou oo y")
_CODAS = _parts("     n r l s t m ck ng nd x rt st")
"""Separated by single spaces; some are empty."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FOREIGN = "abcdeghiklmnorstu" * 2 + "äöüßéèêñçåøæšžłćíóáúœжияслнαβλ日本中文한국😀🚀"


class Material:
    """A seeded source of material. ``held_out`` takes values from the lists training never saw."""

    def __init__(self, seed: int, *, held_out: bool = False) -> None:
        self.random = random.Random(seed)
        self.held_out = held_out

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def known(self, trained: Sequence[T], held_out: Sequence[T]) -> T:
        return self.random.choice(held_out if self.held_out else trained)

    def word(self) -> str:
        """A word that does not exist, so that it can only be copied."""
        r, x = self.random, self.random.random()
        if x < 0.1:
            return "".join(r.choice(_LETTERS) for _ in range(r.randint(2, 7)))
        if x < 0.15:
            return "".join(r.choice(_FOREIGN) for _ in range(r.randint(2, 7)))
        if x < 0.2:
            ending = r.choice(["ing", "ed", "er", "able", "s", "ness", "let", "ford", "ville"])
            return r.choice(words.WORDS) + ending
        return "".join(
            r.choice(_ONSETS) + r.choice(_VOWELS) + r.choice(_CODAS)
            for _ in range(r.choice([1, 2, 2, 2, 3, 3]))
        )

    def capitalised(self) -> str:
        return self.word().capitalize()

    def name(self) -> str:
        if self.chance(0.35):
            return self.known(words.NAMES, words.HELD_OUT_NAMES)
        return self.capitalised()

    def city(self) -> str:
        x = self.random.random()
        if x < 0.45:
            return self.known(words.CITIES, words.HELD_OUT_CITIES)
        if x < 0.85:
            return self.capitalised()
        first = self.choice(["New", "Port", "San", "Old", "Lake", self.capitalised()])
        return f"{first} {self.capitalised()}"

    def place(self) -> str:
        """A city, sometimes with its country or state."""
        if self.chance(0.8):
            return self.city()
        second = self.choice([*words.CAPITALS, "CA", "TX", "NY", self.capitalised()])
        return f"{self.city()}, {second}"

    def number(self, digits: int = 6) -> int:
        return self.random.randint(0, 10 ** self.random.randint(1, digits) - 1)

    def time(self) -> str:
        return f"{self.random.randint(0, 23):02d}:{self.random.randint(0, 59):02d}"

    def date(self) -> str:
        r = self.random
        return f"20{r.randint(10, 39)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"

    def phrase(self, longest: int = 6) -> str:
        """One to ``longest`` words of any kind."""
        return " ".join(self._phrase_word() for _ in range(self.random.randint(1, longest)))

    def _phrase_word(self) -> str:
        x = self.random.random()
        if x < 0.25:
            return self.word()
        if x < 0.35:
            return self.capitalised()
        if x < 0.43:
            return self.name()
        if x < 0.52:
            return str(self.number())
        if x < 0.57:
            return self.city()
        return self.choice(words.WORDS)

    def value(self) -> str:
        """What a function's string argument may be."""
        x = self.random.random()
        if x < 0.35:
            return self.place()
        if x < 0.5:
            return self.name()
        if x < 0.65:
            return self.capitalised()
        if x < 0.72:
            return self.word().upper()[:5]
        if x < 0.80:
            separator = self.choice(["-", "_", "/", "."])
            return self.word() + separator + self.choice([self.word(), str(self.number(4))])
        if x < 0.84:
            return self.date()
        return self.phrase(3)

    def casing(self) -> Casing:
        """How this user writes: mostly as in the pattern, sometimes lower or upper case."""
        x = self.random.random()
        if x < 0.66:
            return str
        if x < 0.74:
            return _without_full_stop
        if x < 0.81:
            return str.lower
        if x < 0.88:
            return lambda text: _without_full_stop(text.lower())
        return str.upper


def _without_full_stop(text: str) -> str:
    return text.rstrip("?!.")
