"""Helpers for stores: packing of values, large parts, batches of events, writes during an outage, and tables of
limits and usage."""
