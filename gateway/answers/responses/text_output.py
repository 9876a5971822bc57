"""The parameters of a request for the text of its response: text format and log probabilities."""

from __future__ import annotations

from gateway.base.errors import ParamPath
from gateway.generation.text_format import shared_format, shared_path
from gateway.plugins.protocols import TextFormat
from gateway.wire.request import ResponseRequest
from gateway.wire.text import PlainText

_TEXT = TextFormat()


def text_format_of(
    request: ResponseRequest, *, extended: bool = True
) -> tuple[TextFormat, ParamPath]:
    """Return the format of the final text, and the path of the parameter that sets it, which is empty for
    `text.format`. Raises `InvalidRequest` if several parameters set it. `extended`: see `refuse`."""
    config = request.text.format
    if isinstance(config, PlainText) and not (extended and request.structures):
        return _TEXT, ()
    match config.type:
        case "json_schema":
            wanted = TextFormat(
                kind="json_schema",
                name=config.name,
                schema=config.schema or {},
                strict=bool(config.strict),
                description=config.description,
            )
        case "json_object":
            wanted = TextFormat(kind="json_object")
        case _:
            wanted = TextFormat()
    found = shared_format(request, wanted, "text.format")
    return found, shared_path(request) if config.type == "text" else ()


def logprobs_of(request: ResponseRequest) -> int | None:
    """Return the number of alternatives per token; None if log probabilities were not requested."""
    if request.top_logprobs:
        return request.top_logprobs
    return 0 if "message.output_text.logprobs" in (request.include or ()) else None
