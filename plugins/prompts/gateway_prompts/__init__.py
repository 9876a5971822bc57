"""Stored prompts: the API `/v1/prompts`, whose prompts requests to `/v1/responses` name."""

from gateway_prompts.plugin import gateway_register_apis

__all__ = ["gateway_register_apis"]
