"""The console: a page for browsers at `/`, on which the gateway's models are tried and looked at."""

from gateway_console.plugin import gateway_register_apis

__all__ = ["gateway_register_apis"]
