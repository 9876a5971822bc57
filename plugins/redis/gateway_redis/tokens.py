"""Tokens of calls, by which Redis recognizes a call that is repeated because its answer was lost."""

from __future__ import annotations

import itertools
import os


class CallTokens:
    """Generates the tokens of one process."""

    def __init__(self) -> None:
        self.process = os.urandom(6).hex()
        self._numbers = itertools.count()

    def next(self) -> str:
        """A unique token."""
        return f"{self.process}:{next(self._numbers)}"
