"""Helpers for stores."""

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
from gateway.store_writes import notify_all, outcome_future, through_outage
from gateway.stored_parts import LARGE, Cut, cut, named_parts, restore, whole_size
from gateway.usage_table import UsageTable

__all__ = [
    "BUCKETS_KEPT",
    "LARGE",
    "WIDTH_SECONDS",
    "Cut",
    "LimitTable",
    "Unpacker",
    "UsageTable",
    "ValueTable",
    "cut",
    "named_parts",
    "notify_all",
    "outcome_future",
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
