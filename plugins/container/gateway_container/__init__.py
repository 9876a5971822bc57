"""Containers: sandboxes with a working folder, the shell tools that run in them, and the routes to their files."""

from gateway_container.plugin import (
    gateway_register_resources,
    gateway_register_routes,
    gateway_register_tools,
)

__all__ = ["gateway_register_resources", "gateway_register_routes", "gateway_register_tools"]
