"""`[resources.files]` in `gateway.toml`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.sdk.configuration import Positive


class FilesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[resources.files]`."""

    path: str = ""
    """The folder of the files; relative to the working directory. Server processes may share it. Empty: a temporary
    folder of this process, deleted when it ends; several workers need a path, or each finds only its own files."""
    max_file_bytes: Positive = 67_108_864
    """Maximum size of a file in bytes."""
    max_total_bytes: Positive = 10_737_418_240
    """Maximum size of all files of one API key, in bytes."""
    max_files: Positive = 10_000
    """Maximum number of files of one API key."""
    max_text: Positive = 16_777_216
    """Maximum number of characters of one file's text, if it is read as text."""
    reading: Annotated[int, Meta(ge=1, le=64)] = 2
    """Number of files that each process reads as text concurrently."""
    reading_time: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds in which a helper process must read a file as text."""
    reading_memory: Annotated[int, Meta(ge=134_217_728)] = 1_073_741_824
    """Memory limit of a helper process, in bytes."""
