"""MCP servers as tools: configured servers, and remote ones that a request names."""

from gateway_mcp.plugin import gateway_register_tools

__all__ = ["gateway_register_tools"]
