"""Names of single calls, by which Redis knows one that comes twice because its answer was lost."""

from __future__ import annotations

import itertools
import os


class Tokens:
    """Tokens of one process."""

    def __init__(self) -> None:
        self.process = os.urandom(6).hex()
        self._numbers = itertools.count()

    def next(self) -> str:
        """One that no other call has."""
        return f"{self.process}:{next(self._numbers)}"
