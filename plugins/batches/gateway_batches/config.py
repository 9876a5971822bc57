"""`[apis.batches]` in `gateway.toml`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.sdk.configuration import Positive


class BatchesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[apis.batches]`."""

    concurrency: Annotated[int, Meta(ge=1, le=1024)] = 8
    """Number of lines that each server process runs concurrently, of all batches together."""
    running: Annotated[int, Meta(ge=1, le=64)] = 4
    """Number of batches that each server process runs concurrently. Further ones wait."""
    priority: Annotated[int, Meta(ge=0, le=1_000_000)] = 100
    """Added to the priority of the batch's API key where its lines wait for a model, among the lines of all batches. 0 lets lines wait
    like requests of clients."""
    max_lines: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Maximum number of lines of a batch."""
    max_line_bytes: Annotated[int, Meta(ge=1024, le=268_435_456)] = 8_388_608
    """Maximum length of a line in bytes."""
    max_output_bytes: Positive = 1_073_741_824
    """Maximum size of the results of a batch, in bytes. The batch fails where it has more."""
    max_active: Positive = 100
    """Maximum number of batches of one API key that have not ended."""
    attempts: Annotated[int, Meta(ge=1, le=100)] = 3
    """How often a line is run that fails with an error of the server (500, 502, 504). A line that is rejected because of a limit or
    because the model is not available (429, 503) is run again until the batch expires."""
    lease_seconds: Annotated[float, Meta(ge=1)] = 15.0
    """Seconds after which another process continues the batches of one that has died."""
    keep_days: Annotated[int, Meta(ge=1, le=3650)] = 90
    """Days for which a batch that has ended is listed. Its files are kept until they are deleted or expire."""
