"""The store `memory`: keeps responses in this process, bounded by time and size."""

from gateway_memory.plugin import MemoryConfig, gateway_register_stores, open_memory
from gateway_memory.store import MemoryStore

__all__ = ["MemoryConfig", "MemoryStore", "gateway_register_stores", "open_memory"]
