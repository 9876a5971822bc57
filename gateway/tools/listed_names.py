"""The names under which a model sees the tools of listed servers.

What a server calls its tools never decides whose tool a name means: servers that a request names by their addresses are not
trusted with the names of others.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Final

LONGEST: Final = 128
"""Maximum length of a name, as OpenAI's API has it."""
_LONGEST_PREFIX: Final = 64
_BETWEEN: Final = "__"
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_.-]")


def clean(name: str) -> str:
    """The name with only the characters that names in prompts may have."""
    return _NOT_IN_NAMES.sub("_", name)


def qualified(label: str, name: str) -> str:
    """The name of a server's tool with the server's label: `label__name`."""
    return f"{clean(label)[:_LONGEST_PREFIX]}{_BETWEEN}{clean(name)}"[:LONGEST]


class ListedNames:
    """Names of one request's tools. Each listed server has its label, and two underscores, as a prefix that only its own tools
    have. Where several prefixes fit a name, it belongs to the longest."""

    def __init__(self, labels: Sequence[str]) -> None:
        """`labels` are those of all listed servers. The labels of trusted ones come first."""
        self._prefixes: dict[str, str] = {}
        for label in dict.fromkeys(labels):
            prefix = clean(label)[:_LONGEST_PREFIX]
            number = 2
            while (
                prefix + _BETWEEN in self._prefixes.values()
            ):  # differs only in what is cleaned or cut off
                prefix = f"{clean(label)[: _LONGEST_PREFIX - 8]}_{number}"
                number += 1
            self._prefixes[label] = prefix + _BETWEEN

    def free(self, label: str, name: str, taken: Container[str], *, trusted: bool) -> str:
        """A name for the tool `name` of the server `label` that is not `taken`: without the label only if the server is `trusted`
        and the name begins with the prefix of no other."""
        own = self._prefixes[label]
        bare = clean(name)[:LONGEST]
        if trusted and bare not in taken and self._owner(bare) in (None, own):
            return bare
        candidate = (own + clean(name))[:LONGEST]
        if self._owner(candidate) != own:
            candidate = (own + re.sub("_+", "_", clean(name)).lstrip("_"))[:LONGEST]
        number, free = 2, candidate
        while free in taken:
            free = f"{candidate[: LONGEST - 8]}_{number}"
            number += 1
        return free

    def _owner(self, name: str) -> str | None:
        """The prefix of the server that a name belongs to."""
        return max(
            (each for each in self._prefixes.values() if name.startswith(each)),
            key=len,
            default=None,
        )
