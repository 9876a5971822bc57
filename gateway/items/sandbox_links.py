"""Links in model output to files in containers: `[plot](sandbox:/mnt/data/plot.png)`. The text itself is unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from gateway.plugins.protocols import ContainerFileSource

_SCHEME: Final = "sandbox:"


class SandboxLink(Struct, frozen=True):
    """A link target that is a known file."""

    source: ContainerFileSource
    text: str
    """The target as the model wrote it, including `sandbox:`."""


Piece: TypeAlias = str | SandboxLink


class SandboxLinkReader:
    """Finds link targets in streamed text. The result depends on the characters fed, not on how they were chunked.

    A target is `sandbox:` followed by the path of a known file, verbatim or percent-encoded. The longest match is used,
    and the next character must not continue a path. Holds back text that may still become a target.
    """

    def __init__(self, files: Mapping[str, ContainerFileSource]) -> None:
        """`files` maps paths to files."""
        self._files = files
        self._spellings: dict[str, ContainerFileSource] | None = None
        self._held = ""

    def feed(self, text: str) -> list[Piece]:
        """Read `text`. Returns the pieces that it completes."""
        if not self._files:
            return [text] if text else []
        return self._read(self._held + text, last=False)

    def finish(self) -> list[Piece]:
        """Return the pieces held back at the end of the text. The reader can then be used for another text."""
        return self._read(self._held, last=True)

    def _read(self, text: str, *, last: bool) -> list[Piece]:
        self._held = ""
        pieces: list[Piece] = []
        done = pos = 0
        while (start := text.find(_SCHEME, pos)) >= 0:
            found = self._target(text, start + len(_SCHEME), last)
            if found is None:
                self._held, text = text[start:], text[:start]
                break
            source, pos = found
            if source is not None:
                pieces += (text[done:start], SandboxLink(source, text[start:pos]))
                done = pos
        else:
            begun = 0 if last else _partial_target(text[pos:])
            if begun:
                self._held, text = text[-begun:], text[:-begun]
        pieces.append(text[done:])
        return [piece for piece in pieces if piece]

    def _target(
        self, text: str, start: int, last: bool
    ) -> tuple[ContainerFileSource | None, int] | None:
        """Return the file whose path begins at `start`, if any, and the end of the path. None if more text is needed to
        decide."""
        if self._spellings is None:
            self._spellings = {
                spelling: source
                for path, source in self._files.items()
                for spelling in (path, quote(path))
            }
        best = ""
        for spelling in self._spellings:
            if text.startswith(spelling, start):
                best = max(best, spelling, key=len)
            elif not last and spelling.startswith(text[start:]):
                return None
        if not best:
            return None, start
        end = start + len(best)
        after = text[end : end + 2]
        if not last and after in ("", "."):
            return None
        if after and (
            after[0].isalnum() or after[0] in "_-/%" or (after[1:].isalnum() and after[0] == ".")
        ):
            return None, start
        return self._spellings[best], end


def _partial_target(text: str) -> int:
    """Return the number of trailing characters that may be the beginning of a target."""
    return next(
        (size for size in range(len(_SCHEME) - 1, 0, -1) if text.endswith(_SCHEME[:size])), 0
    )


def by_path(files: Iterable[ContainerFileSource]) -> dict[str, ContainerFileSource]:
    """Map each path to its newest file."""
    return {file.path: file for file in files}
