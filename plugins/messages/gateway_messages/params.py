"""Parameter names of this API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gateway.sdk import GatewayError, ParamPath
from gateway_messages import request as wire
from gateway_messages.generation_request import ConvertedRequest
from gateway_messages.server_tools import ToolOrigin

UNSUPPORTED_TOOL = "unsupported_tool"
"""The gateway's error code for a tool that it does not run."""


@contextmanager
def explained_tools(request: ConvertedRequest) -> Iterator[None]:
    """A context in which errors about unavailable tools name their types as this API does."""
    try:
        yield
    except GatewayError as error:
        if error.code == UNSUPPORTED_TOOL:
            _explain(error, request.tools.origins)
        raise


def request_path(
    path: ParamPath, request: wire.MessagesRequest, converted: ConvertedRequest
) -> ParamPath:
    """The place in `request` of `path`, which is a place in the generation request that was made from it. Empty for
    what is not in the request."""
    match path:
        case ("input", int(index), "content" | "output", int(part), *_) if index in converted.parts:
            return converted.parts[index][part]
        case ("input", int(index), *_):
            return converted.origins[index] if index < len(converted.origins) else ()
        case ("input",) | ("continue_final_message",):
            return ("messages",)
        case ("instructions",):
            return ("system",)
        case ("max_output_tokens",):
            return ("max_tokens",)
        case ("stop", *rest) if request.stop is None:
            return ("stop_sequences", *rest)
        case ("reasoning", *_):
            return _effort_path(request)
        case ("text", "format", *_):
            return (
                ("output_config", "format") if request.output_format is None else ("output_format",)
            )
        case ("tools", int(index), *rest) if index < len(converted.tools.origins):
            origin = converted.tools.origins[index]
            return (*origin.param, *_in_tool(origin, rest))
        case _:
            return path


def _effort_path(request: wire.MessagesRequest) -> ParamPath:
    """The parameter that `gateway_messages.generation_request` takes the effort from."""
    config = request.output_config
    if (
        config is None
        or config.effort is None
        or isinstance(request.thinking, wire.ThinkingDisabled)
    ):
        return ("thinking",)
    return ("output_config", "effort")


def _in_tool(origin: ToolOrigin, rest: Sequence[str | int]) -> Sequence[str | int]:
    """The place in an entry for `rest`, a place in the tool that was made from it."""
    if origin.type == "mcp" and origin.param[0] == "tools":  # it names a configured server
        return ["mcp_server_name"] if rest == ["server_label"] else []
    match rest:
        case ["parameters", *below]:
            return ["input_schema", *below]
        case ["filters", "allowed_domains" | "blocked_domains" as name, *below]:
            return [name, *below]
        case ["server_label"]:
            return ["name"]
        case ["server_url"]:
            return ["url"]
        case ["authorization"]:
            return ["authorization_token"]
        case ["type" | "name"]:
            return rest
        case _:
            return rest if origin.type == "custom" else []


def _explain(error: GatewayError, origins: Sequence[ToolOrigin]) -> None:
    """Name the type of an unavailable tool as this API does."""
    for origin in origins:
        if error.at in (origin.param, (*origin.param, "type")):
            break
    else:
        return
    mcp = origin.type == "mcp"
    what = "MCP servers" if mcp else f"Tools of type '{origin.type}'"
    error.message = (
        f"{what} are not available here. Leave it out, or have the server configured with a plugin that runs it "
        f"([tools.{origin.plugin}])."
    )
    error.at = origin.param if mcp else (*origin.param, "type")
