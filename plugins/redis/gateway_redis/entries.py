"""Entries of an event log: each holds the events of one append, under the number of events that the log has with them."""

from __future__ import annotations

_EVENT = b"e"
_GONE = b"gone"
_END = b"end"


def events_of(entry_id: bytes, fields: list[bytes]) -> tuple[list[bytes], int, bool] | None:
    """An entry's events, the log's length with them, and whether it ends there; None where the response was deleted."""
    length = int(entry_id[: entry_id.index(b"-")])
    if len(fields) == 2 and fields[0] == _EVENT:
        return [fields[1]], length, False
    if fields[0] == _GONE:
        return None
    if fields[-2] == _END:
        return fields[1:-2:2], length, True
    return fields[1::2], length, False
