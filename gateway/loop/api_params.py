"""The parameters that errors of a plugin's API name."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gateway.errors import ParamPath, renamed_params
from gateway.loop.text_format import shared_path
from gateway.protocols import GenerationRequest


def request_params(request: GenerationRequest) -> AbstractContextManager[None]:
    """A context in which errors about `request` name the parameters of the client's request."""
    text_format = () if request.parameters is None else shared_path(request.parameters)
    own_path = request.own_path

    def rename(path: ParamPath) -> ParamPath:
        if text_format and path[:2] == ("text", "format"):
            return text_format
        return path if own_path is None else own_path(path)

    return renamed_params(rename)
