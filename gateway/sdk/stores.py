"""Helpers for stores."""

from gateway.plugins.protocols.usage import BUCKETS_KEPT, WIDTH_SECONDS
from gateway.storage.event_batches import LOST, REFUSED, BatchEntry, EventBatchWriter
from gateway.storage.limit_table import DAY_SECONDS, LimitTable, counted_at, decayed, refusal
from gateway.storage.packing import (
    Unpacker,
    pack,
    pack_json,
    unpack_completion,
    unpack_conversation,
    unpack_item,
    unpack_items,
    unpack_metadata,
    unpack_record,
    unpack_results,
)
from gateway.storage.parts import LARGE, Cut, cut, named_parts, restore, whole_size
from gateway.storage.shared_values import (
    ValueTable,
)
from gateway.storage.usage_table import UsageTable
from gateway.storage.writes import WriteTokens, through_outage

__all__ = [
    "BUCKETS_KEPT",
    "DAY_SECONDS",
    "LARGE",
    "LOST",
    "REFUSED",
    "WIDTH_SECONDS",
    "BatchEntry",
    "Cut",
    "EventBatchWriter",
    "LimitTable",
    "Unpacker",
    "UsageTable",
    "ValueTable",
    "WriteTokens",
    "counted_at",
    "cut",
    "decayed",
    "named_parts",
    "pack",
    "pack_json",
    "refusal",
    "restore",
    "through_outage",
    "unpack_completion",
    "unpack_conversation",
    "unpack_item",
    "unpack_items",
    "unpack_metadata",
    "unpack_record",
    "unpack_results",
    "whole_size",
]
