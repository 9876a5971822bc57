"""`[resources.files]` in `gateway.toml`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

Count: TypeAlias = Annotated[int, Meta(ge=1)]


class FilesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[resources.files]`."""

    path: str = ""
    """The folder of the files; relative to the working directory. Server processes may share it. Empty: a temporary
    folder of this process, deleted when it ends."""
    max_file_bytes: Count = 67_108_864
    """Maximum size of a file in bytes."""
    max_total_bytes: Count = 10_737_418_240
    """Maximum size of all files of one API key, in bytes."""
    max_files: Count = 10_000
    """Maximum number of files of one API key."""
    max_text: Count = 16_777_216
    """Maximum number of characters of one file's text, if it is read as text."""
    reading: Annotated[int, Meta(ge=1, le=64)] = 2
    """Number of files that each process reads as text concurrently."""
    reading_time: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds in which a helper process must read a file as text."""
    reading_memory: Annotated[int, Meta(ge=134_217_728)] = 1_073_741_824
    """Memory limit of a helper process, in bytes."""
