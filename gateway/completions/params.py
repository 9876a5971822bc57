"""Parameter names of Completions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from gateway.errors import ParamPath, renamed_params
from gateway.loop.text_format import text_path
from gateway.wire.completions import CompletionRequest


def _request_path(path: ParamPath, request: CompletionRequest) -> ParamPath:
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


def request_params(request: CompletionRequest) -> AbstractContextManager[None]:
    """A context in which errors name the parameters of `request`."""
    return renamed_params(partial(_request_path, request=request))
