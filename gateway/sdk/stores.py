"""Helpers for stores."""

from gateway.protocols.usage import BUCKETS_KEPT, WIDTH_SECONDS
from gateway.stores.event_batches import LOST, REFUSED, BatchEntry, EventBatchWriter
from gateway.stores.limit_table import DAY_SECONDS, LimitTable, counted_at, decayed, refusal
from gateway.stores.packing import (
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
from gateway.stores.parts import LARGE, Cut, cut, named_parts, restore, whole_size
from gateway.stores.shared_values import (
    ValueTable,
)
from gateway.stores.usage_table import UsageTable
from gateway.stores.writes import WriteTokens, through_outage

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
