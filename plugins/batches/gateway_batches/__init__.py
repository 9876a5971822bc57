"""Batches: files of requests that run beside those of clients: `/v1/batches`."""

from gateway_batches.plugin import gateway_register_apis

__all__ = ["gateway_register_apis"]
