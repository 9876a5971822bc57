"""Constraint trees translated once, and remembered."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec
from msgspec import Struct

from gateway.constraints import Constraint
from gateway.engines.xgrammar import Enforcement, structured_outputs, unwanted_special_tokens

_REMEMBERED = 256


class Translated(Struct):
    """What an engine is given for a constraint."""

    arguments: dict[str, Any] | None
    """Those of the engine's own structured outputs; None: anything is allowed."""
    unwanted: list[int]
    """Special tokens to be ruled out, because the constraint takes them for the text that they are written with."""
    verified: bool = False
    """Whether the engine has found it good."""


class Translations:
    """Translates for one engine. It takes about a millisecond, so that the last are remembered."""

    def __init__(self, by: Enforcement) -> None:
        self._by = by
        self._found: OrderedDict[bytes, Translated] = OrderedDict()

    def of(self, constraint: Constraint) -> Translated:
        """Raises `Unsupported` for what cannot be enforced, and what the `Enforcement`'s functions raise."""
        key = msgspec.json.encode(constraint)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Translated(
                arguments=structured_outputs(constraint, self._by),
                unwanted=unwanted_special_tokens(constraint, self._by),
            )
            if len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(key)
        return found
