"""Parameter names of Completions."""

from __future__ import annotations

from gateway.errors import ParamPath
from gateway.loop.text_format import text_path
from gateway.wire.completions import CompletionRequest


def request_path(path: ParamPath, request: CompletionRequest) -> ParamPath:
    """The place in `request` of `path`, which names its parts as the Responses API does."""
    match path:
        case ("input", *_):
            return ("prompt",)
        case ("max_output_tokens",):
            return ("max_tokens",)
        case ("text", "format", *_):
            return text_path(request)
        case _:
            return path
