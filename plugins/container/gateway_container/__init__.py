"""Containers: sandboxes with a working folder, and the shell tools that run in them."""

from gateway_container.plugin import gateway_register_tools

__all__ = ["gateway_register_tools"]
