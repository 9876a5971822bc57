"""Files and vector stores, and the tool `file_search` over them."""

from gateway_file_search.plugin import gateway_register_routes, gateway_register_tools

__all__ = ["gateway_register_routes", "gateway_register_tools"]
