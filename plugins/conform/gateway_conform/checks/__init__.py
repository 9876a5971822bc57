"""The checks, in one module for each area. Importing this package registers all of them."""

from gateway_conform.checks import (
    chat,
    completions,
    embeddings,
    errors,
    lifecycle,
    models,
    responses,
    streaming,
    structured_output,
    tools,
)

__all__ = [
    "chat",
    "completions",
    "embeddings",
    "errors",
    "lifecycle",
    "models",
    "responses",
    "streaming",
    "structured_output",
    "tools",
]
