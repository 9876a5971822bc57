"""Helpers for stores."""

from gateway.event_batches import LOST, REFUSED, BatchEntry, EventBatchWriter
from gateway.limit_table import LimitTable
from gateway.packing import (
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
from gateway.protocols.usage import BUCKETS_KEPT, WIDTH_SECONDS
from gateway.shared_values import (
    ValueTable,
)
from gateway.store_writes import WriteTokens, through_outage
from gateway.stored_parts import LARGE, Cut, cut, named_parts, restore, whole_size
from gateway.usage_table import UsageTable

__all__ = [
    "BUCKETS_KEPT",
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
    "cut",
    "named_parts",
    "pack",
    "pack_json",
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
