"""OpenAI's types as msgspec Structs, with functions to decode and encode them."""

from gateway.wire import (
    content,
    items,
    tools,
)
from gateway.wire.api_parameters import ApiParameters, Parameter, Refusal
from gateway.wire.chat import ChatCompletion
from gateway.wire.common import (
    JsonObject,
    Phase,
    Tagged,
    Value,
    Wire,
    encode,
)
from gateway.wire.content import (
    InputText,
    OutputText,
    ToolOutputContent,
)
from gateway.wire.decoding import (
    convert,
    decode_object,
    members,
    one_of,
)
from gateway.wire.field_errors import (
    MAX_TOOLS,
    check_length,
    missing,
    not_among,
    shortened,
    wrong_type,
)
from gateway.wire.ids import (
    new_id,
)
from gateway.wire.items import (
    CodeInterpreterCall,
    FileSearchResult,
    FindInPageAction,
    Item,
    Message,
    OpenPageAction,
    SearchAction,
    ShellExit,
    ShellOutput,
    ShellTimeout,
    UrlSource,
    WebSearchAction,
)
from gateway.wire.json_text import decode_text, is_too_deep
from gateway.wire.large_bodies import decode_body, threaded_if_large
from gateway.wire.listing import (
    Deleted,
    Listing,
    listing,
)
from gateway.wire.parameter_table import PLUGINS as SHARED_PARAMETERS
from gateway.wire.parameters import (
    SharedParameters,
)
from gateway.wire.refusals import unknown_names
from gateway.wire.request import (
    decode_metadata,
)
from gateway.wire.response import (
    Conversation,
    Response,
    ResponseStatus,
    Usage,
    snapshot,
)
from gateway.wire.sampling import (
    MAX_INT,
    Stops,
)
from gateway.wire.stored_chat import (
    StoredChatCompletion,
)
from gateway.wire.tools import (
    CodeInterpreterTool,
    FileSearchTool,
    McpTool,
    RankingOptions,
    ShellTool,
    Tool,
    ToolName,
    UserLocation,
    WebSearchFilters,
    WebSearchTool,
)

__all__ = [
    "MAX_INT",
    "MAX_TOOLS",
    "SHARED_PARAMETERS",
    "ApiParameters",
    "ChatCompletion",
    "CodeInterpreterCall",
    "CodeInterpreterTool",
    "Conversation",
    "Deleted",
    "FileSearchResult",
    "FileSearchTool",
    "FindInPageAction",
    "InputText",
    "Item",
    "JsonObject",
    "Listing",
    "McpTool",
    "Message",
    "OpenPageAction",
    "OutputText",
    "Parameter",
    "Phase",
    "RankingOptions",
    "Refusal",
    "Response",
    "ResponseStatus",
    "SearchAction",
    "SharedParameters",
    "ShellExit",
    "ShellOutput",
    "ShellTimeout",
    "ShellTool",
    "Stops",
    "StoredChatCompletion",
    "Tagged",
    "Tool",
    "ToolName",
    "ToolOutputContent",
    "UrlSource",
    "Usage",
    "UserLocation",
    "Value",
    "WebSearchAction",
    "WebSearchFilters",
    "WebSearchTool",
    "Wire",
    "check_length",
    "content",
    "convert",
    "decode_body",
    "decode_metadata",
    "decode_object",
    "decode_text",
    "encode",
    "is_too_deep",
    "items",
    "listing",
    "members",
    "missing",
    "new_id",
    "not_among",
    "one_of",
    "shortened",
    "snapshot",
    "threaded_if_large",
    "tools",
    "unknown_names",
    "wrong_type",
]
