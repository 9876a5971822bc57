"""Errors for documents that have no text. They are raised in helper processes; the gateway recognizes them by their
names."""

from __future__ import annotations


class InvalidFile(Exception):
    """The file has no readable text; the message says why."""


class UnsupportedFile(InvalidFile):
    """The type of the file is not supported."""


def too_long(most: int) -> InvalidFile:
    return InvalidFile(f"The file's text has more than {most} characters, this server's limit.")


class TextLimit:
    """Counts the characters of a text while it is read. Each piece counts one more character, for its separator."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = 0

    def count(self, text: str) -> str:
        """Return `text`. Raises `InvalidFile` beyond the limit."""
        self._length += len(text) + 1
        if self._length > self._most + 1:
            raise too_long(self._most)
        return text
