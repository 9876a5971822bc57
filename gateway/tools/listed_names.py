"""The names by which a model sees the tools of listed servers.

A server cannot take over the name of another server's tool by its choice of names: servers that a request gives by
their addresses are not trusted.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Final

LONGEST: Final = 128
"""Maximum length of a name in OpenAI's API."""
_LONGEST_PREFIX: Final = 64
_BETWEEN: Final = "__"
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_.-]")


def clean(name: str) -> str:
    """`name`, reduced to the characters that names in prompts may have."""
    return _NOT_IN_NAMES.sub("_", name)


def qualified(label: str, name: str) -> str:
    """The name of a server's tool with the server's label: `label__name`."""
    return f"{clean(label)[:_LONGEST_PREFIX]}{_BETWEEN}{clean(name)}"[:LONGEST]


class ListedNames:
    """Names for the tools of one request. The label of a listed server and two underscores are a prefix that only the
    tools of this server have. A name that begins with several prefixes belongs to the longest of them."""

    def __init__(self, labels: Sequence[str]) -> None:
        """`labels` are the labels of all listed servers, those of trusted servers first."""
        self._prefixes: dict[str, str] = {}
        for label in dict.fromkeys(labels):
            prefix = clean(label)[:_LONGEST_PREFIX]
            number = 2
            while (
                prefix + _BETWEEN in self._prefixes.values()
            ):  # differs only in characters that were replaced or cut off
                prefix = f"{clean(label)[: _LONGEST_PREFIX - 8]}_{number}"
                number += 1
            self._prefixes[label] = prefix + _BETWEEN

    def free(self, label: str, name: str, taken: Container[str], *, trusted: bool) -> str:
        """A name that is not in `taken`, for the tool `name` of the server `label`. It lacks the label only if the
        server is `trusted` and `name` does not begin with another server's prefix."""
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
