"""The objects of the API, and the lines of the files that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, UnsetType

from gateway.sdk.wire import Value

Status: TypeAlias = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
Ending: TypeAlias = Literal["completed", "failed", "expired", "cancelled"]
"""The statuses of batches that have ended."""


class BatchError(Value, frozen=True, kw_only=True):
    """What is wrong with a batch or with a line of its file."""

    code: str
    message: str
    line: int | None = None
    """The number of the line, from 1."""
    param: str | None = None


class BatchErrors(Value, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: Sequence[BatchError]


class RequestCounts(Value, frozen=True, kw_only=True):
    total: int
    completed: int
    failed: int


class InputTokensDetails(Value, frozen=True, kw_only=True):
    cached_tokens: int


class OutputTokensDetails(Value, frozen=True, kw_only=True):
    reasoning_tokens: int


class BatchUsage(Value, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Batch(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None
    """The model that all lines name; null if they name several."""
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None


class LineResponse(Value, frozen=True, kw_only=True):
    status_code: int
    request_id: str
    body: Raw


class LineError(Value, frozen=True, kw_only=True):
    """Why a line has no response."""

    code: str
    message: str
    line: int | UnsetType = UNSET
    """The number of the line, from 1."""


class LineResult(Value, frozen=True, kw_only=True):
    """A line of an output file or of an errors file."""

    id: str
    custom_id: str | None
    """Null if the line of the input has none that can be read."""
    response: LineResponse | None
    error: LineError | None
