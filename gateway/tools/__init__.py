"""Tools: resolving a request's tools, running their calls, and helpers for tool plugins."""
