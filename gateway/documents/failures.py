"""Errors for documents that have no text. They are raised in helper processes, and recognized by their names outside."""

from __future__ import annotations


class InvalidFile(Exception):
    """The file has no readable text; the message says why."""


class UnsupportedFile(InvalidFile):
    """The type of the file is not supported."""


def too_long(most: int) -> InvalidFile:
    return InvalidFile(f"The file's text has more than {most} characters, this server's limit.")
