"""Served models: look-up by name, routing, loading and unloading, and models of a hub."""
