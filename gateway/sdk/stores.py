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
from gateway.shared_values import (
    ValueTable,
)
from gateway.usage_table import UsageTable

__all__ = [
    "LimitTable",
    "Unpacker",
    "UsageTable",
    "ValueTable",
    "pack",
    "pack_json",
    "unpack_completion",
    "unpack_conversation",
    "unpack_item",
    "unpack_items",
    "unpack_metadata",
    "unpack_record",
    "unpack_results",
]
