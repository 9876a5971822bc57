"""Containers: sandboxes with a working folder, the shell tools that run in them, and the API routes for containers
and their files."""

from gateway_container.plugin import (
    gateway_register_apis,
    gateway_register_resources,
    gateway_register_tools,
)

__all__ = ["gateway_register_apis", "gateway_register_resources", "gateway_register_tools"]
