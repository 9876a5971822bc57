"""Litegate: one OpenAI-compatible endpoint in front of the LLM engines that you host."""

from gateway.plugins.hookspecs import hookimpl

__all__ = ["hookimpl"]
