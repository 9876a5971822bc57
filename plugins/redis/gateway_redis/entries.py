"""Entries of an event log. Each holds the events of one append; its id is the length of the log after the append."""

from __future__ import annotations

_EVENT = b"e"
_GONE = b"gone"
_END = b"end"


def events_of(entry_id: bytes, fields: list[bytes]) -> tuple[list[bytes], int, bool] | None:
    """An entry's events, the length of the log after it, and whether the log ends there. None if the response was
    deleted."""
    length = int(entry_id[: entry_id.index(b"-")])
    if len(fields) == 2 and fields[0] == _EVENT:
        return [fields[1]], length, False
    if fields[0] == _GONE:
        return None
    if fields[-2] == _END:
        return fields[1:-2:2], length, True
    return fields[1::2], length, False
