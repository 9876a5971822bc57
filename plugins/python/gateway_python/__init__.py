"""Sandboxed Python that the gateway runs: `code_interpreter`, and Harmony's `python`."""

from gateway_python.plugin import gateway_register_tools

__all__ = ["gateway_register_tools"]
