"""Vector stores of uploaded files, and the tool `file_search` that searches them."""

from gateway_file_search.plugin import (
    gateway_check_configuration,
    gateway_register_apis,
    gateway_register_tools,
)

__all__ = ["gateway_check_configuration", "gateway_register_apis", "gateway_register_tools"]
