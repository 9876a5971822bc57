"""The tools of a chat request: its own tools, web search, and the tools that the configuration adds."""

from __future__ import annotations

from gateway.answers.chat.search import WEB_SEARCH, searching_tools, web_search
from gateway.generation.error_params import ChatParams
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import SessionContext
from gateway.services import Services
from gateway.tools.available import AvailableTools
from gateway.tools.requested import list_without_approval
from gateway.tools.toolset import NO_REQUEST_TOOLS, Toolset, build_toolset
from gateway.wire.chat import ChatRequest


async def chat_toolset(
    request: ChatRequest, services: Services, model: ServedModel, context: SessionContext
) -> Toolset:
    """Resolve the tools of a request. Raises a `GatewayError` that names the invalid parameter."""
    offered = services.tools_of(model)
    listed = NO_REQUEST_TOOLS
    if offered.chat_servers:
        servers = [server for servers in offered.chat_servers for server in servers()]
        listed = await list_without_approval(servers, context)
    tools, by_type = [*(request.tools or ())], {}
    asked = request.web_search_options
    if asked is not None and (found := searching_tools(offered, services.omitted_tools)):
        tools.append(web_search(asked))
        by_type[WEB_SEARCH] = found
    with ChatParams(request):
        return build_toolset(
            tools,
            request.tool_choice,
            AvailableTools(by_type=by_type, always=offered.chat, forbidden=offered.forbidden),
            listed,
            renderer=model.renderer,
            context=context,
        )
