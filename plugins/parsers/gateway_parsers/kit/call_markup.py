"""Markup of calls that cannot be read: what is hidden when their text is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.reader import StepReader, may_become
from gateway_parsers.kit.syntax import MAX_NAME

_ATTRIBUTES: Final = r"[^<>\n]{0,256}"
_SEPARATOR: Final = "<|sep|>"
_NAME: Final = re.compile(r"[\w.:/-]*")
_OPENINGS: Final = re.compile(r"[{\[]")


class CallMarkup:
    """The markup of one call syntax. `outer_end`: the marker after which none of it is expected."""

    def __init__(self, markup: Iterable[str], outer_end: str) -> None:
        self.outer_end = outer_end
        texts = sorted(set(markup), key=len, reverse=True)
        self.tag_end = _SEPARATOR if any(_SEPARATOR in text for text in texts) else ">"
        # Without the tag's end, what follows its start is not known to belong to it.
        attributes = f"(?:{_ATTRIBUTES}(?:{re.escape(self.tag_end)}|\\Z))?"
        self.complete = tuple(text for text in texts if not is_open_tag(text))
        self.tags = tuple(text for text in texts if is_open_tag(text))
        """Starts of tags with attributes."""
        patterns = [re.escape(text) + (attributes if is_open_tag(text) else "") for text in texts]
        self._pattern = re.compile("|".join(patterns)) if patterns else None
        self._beginnings = frozenset(text[:end] for text in texts for end in range(1, len(text)))
        self._longest = max(map(len, texts), default=0)

    def split(self, text: str, *, final: bool) -> tuple[list[tuple[int, str]], str | None]:
        """The pieces of `text` that are not markup, with their offsets, and what is within the tag that it ends in; None
        if it ends in none.

        `final`: nothing follows, so that the beginning of a marker at its end is markup too.
        """
        end = len(text) - (self.partial(text, 0) if final else 0)
        pieces: list[tuple[int, str]] = []
        pos = 0
        open_tag: str | None = None
        for hit in self._pattern.finditer(text, 0, end) if self._pattern is not None else ():
            if hit.start() > pos:
                pieces.append((pos, text[pos : hit.start()]))
            pos = hit.end()
            within = is_open_tag(hit[0]) and not hit[0].endswith(self.tag_end)
            start = next((tag for tag in self.tags if hit[0].startswith(tag)), "")
            open_tag = hit[0][len(start) :] if within else None
        if pos < end:
            pieces.append((pos, text[pos:end]))
        return pieces, open_tag if pos == end else None

    def partial(self, text: str, pos: int) -> int:
        """The length of the beginning of a marker that `text[pos:]` ends with."""
        end = len(text)
        starts = range(max(pos, end - self._longest), end)
        return next((end - at for at in starts if text[at:] in self._beginnings), 0)

    def looks_like_call(self, text: str) -> bool:
        """Whether `text`, which follows a start marker, starts like a call rather than like prose."""
        stripped = text.lstrip(WHITESPACE)
        if _OPENINGS.match(stripped):
            return True
        return self._pattern is not None and self._pattern.match(stripped) is not None


def is_open_tag(text: str) -> bool:
    """Whether a marker is the start of a tag that has attributes or a name, such as `<parameter=`."""
    return text.startswith("<") and not text.endswith(">")


class HiddenReader(StepReader):
    """Reads text that is either hidden or, if it fails, shown."""

    __slots__ = ()

    def finish(self, *, stopped: bool) -> None:
        self.status = "failed"


class TitleReader(HiddenReader):
    """Reads a name before a marker that starts with `end`."""

    __slots__ = ("_length", "_until")

    def __init__(self, end: str) -> None:
        super().__init__("", None, TitleReader._name)
        self._until = end
        self._length = 0

    def _name(self, text: str, pos: int, final: bool) -> int:
        hit = _NAME.match(text, pos)
        end = hit.end() if hit is not None else pos
        self._length += end - pos
        if end == len(text):
            return end
        if not final and may_become(text, end, self._until):
            return end
        named = self._length <= MAX_NAME and text.startswith(self._until, end)
        self.status = "done" if named else "failed"
        return end


class HiddenTagReader(HiddenReader):
    """Reads the rest of a tag up to `end`, of characters that match `allowed`. Fails if it has no end."""

    __slots__ = ("_allowed", "_length", "_until")

    def __init__(self, marker: str, allowed: re.Pattern[str], end: str = ">") -> None:
        super().__init__(marker, None, HiddenTagReader._rest)
        self._allowed = allowed
        self._until = end
        self._length = 0

    def _rest(self, text: str, pos: int, final: bool) -> int:
        while pos < len(text):
            if text.startswith(self._until, pos):
                self.status = "done"
                return pos + len(self._until)
            if not final and may_become(text, pos, self._until):
                return pos
            self._length += 1
            if self._length > MAX_NAME or not self._allowed.match(text[pos]):
                self.status = "failed"
                return pos
            pos += 1
        return pos
