"""Tokens by which a repeated transaction finds that it was already applied."""

from __future__ import annotations

import itertools
import secrets


class TransactionTokens:
    """Each token is unique among all processes."""

    def __init__(self) -> None:
        self._process = secrets.token_hex(8)
        self._numbers = itertools.count()

    def next(self) -> str:
        return f"{self._process}:{next(self._numbers)}"
