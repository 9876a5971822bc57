"""Uploaded files: the API `/v1/files`, and the resource `files` for tools and other APIs."""

from gateway_files.plugin import gateway_register_apis, gateway_register_resources

__all__ = ["gateway_register_apis", "gateway_register_resources"]
