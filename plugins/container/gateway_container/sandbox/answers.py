"""Answers of the agent in a sandbox. They are as untrusted as the code that it runs."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

_Text: TypeAlias = Annotated[str, Meta(max_length=16 * 1_048_576)]
_Reason: TypeAlias = Annotated[str, Meta(max_length=1000)] | None
_Image: TypeAlias = Annotated[bytes, Meta(max_length=6 * 1_048_576)]


class SandboxReady(Struct):
    """The first answer: whether the sandbox was started."""

    failed: _Reason = None


class CommandResult(Struct):
    """A command has ended, was killed, or could not be started."""

    stdout: _Text = ""
    stderr: _Text = ""
    code: int | None = None
    """Exit code; if negative, the signal that ended the command."""
    timed_out: bool = False
    failed: _Reason = None


class SessionOutput(Struct):
    """Output of a session."""

    stdout: _Text = ""
    code: int | None = None
    """Exit code; None while the session runs."""
    failed: _Reason = None


Stat: TypeAlias = tuple[Annotated[str, Meta(max_length=4096)], int, Annotated[int, Meta(ge=0)], int]
"""A file: path, inode, size in bytes, and modification time."""


class FileListing(Struct):
    """The files of the working folder."""

    files: Annotated[list[Stat], Meta(max_length=100_000)] = []
    more: bool = False
    """Whether there are more files than requested."""
    unread: Annotated[str, Meta(max_length=4096)] | None = None
    """A folder that was skipped because it is too deep or unreadable."""
    failed: _Reason = None


class Part(Struct):
    """A part of a file."""

    data: bytes = b""
    failed: _Reason = None


class WriteResult(Struct):
    """A part of a file was written, or a file removed."""

    file: Stat | None = None
    failed: _Reason = None


class CellResult(Struct):
    """A cell has ended or was killed."""

    logs: _Text = ""
    images: Annotated[list[_Image], Meta(max_length=16)] | None = None
    """PNG images; base64 on the wire."""
    stopped: _Reason = None
    """Why the cell was interrupted, if it was."""
    died: _Reason = None
    """How the interpreter ended, if it did."""
    lost: _Reason = None
    """How an earlier interpreter ended since the last cell."""
    failed: _Reason = None
