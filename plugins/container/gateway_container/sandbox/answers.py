"""What the agent in a sandbox answers. It is no more to be trusted than the code that it runs."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

_Text: TypeAlias = Annotated[str, Meta(max_length=16 * 1_048_576)]
_Reason: TypeAlias = Annotated[str, Meta(max_length=1000)] | None
_Image: TypeAlias = Annotated[str, Meta(max_length=8 * 1_048_576, pattern=r"\A[A-Za-z0-9+/]*=*\Z")]


class Ready(Struct):
    """The first answer: the sandbox stands, or it does not."""

    failed: _Reason = None


class Ran(Struct):
    """A command has ended, was ended, or could not be started."""

    stdout: _Text = ""
    stderr: _Text = ""
    code: int | None = None
    """Below zero: the signal that ended it."""
    timed_out: bool = False
    failed: _Reason = None


class Said(Struct):
    """What a session has said."""

    stdout: _Text = ""
    code: int | None = None
    """None: it still runs."""
    failed: _Reason = None


Stat: TypeAlias = tuple[Annotated[str, Meta(max_length=4096)], int, Annotated[int, Meta(ge=0)], int]
"""A file: its path, inode, size in bytes, and the time of its last change."""


class Found(Struct):
    """The files of the working folder."""

    files: Annotated[list[Stat], Meta(max_length=100_000)] = []
    more: bool = False
    """Whether there are more than were asked for."""
    failed: _Reason = None


class Part(Struct):
    """A part of a file."""

    data: bytes = b""
    failed: _Reason = None


class Written(Struct):
    """A part of a file was written, or a file removed."""

    file: Stat | None = None
    failed: _Reason = None


class CellRan(Struct):
    """A cell has ended, or was ended."""

    logs: _Text = ""
    images: Annotated[list[_Image], Meta(max_length=16)] | None = None
    """PNG in base64."""
    stopped: _Reason = None
    """Why it was interrupted, if it was."""
    died: _Reason = None
    """How the interpreter has ended, if it has."""
    lost: _Reason = None
    """How an earlier interpreter has ended since the last cell."""
    failed: _Reason = None
