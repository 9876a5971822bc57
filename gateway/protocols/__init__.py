"""The contracts between the gateway's loop and its plugins.

Everything here is structural: a plugin's class needs no import from here to satisfy it, and the contract kits in
`gateway.testing` check what types cannot say. Units: times in seconds, lengths in tokens unless said otherwise.
"""

from gateway.protocols.engine import (
    Capability,
    Engine,
    EngineOutput,
    EngineRequest,
    FinishReason,
    ModelInfo,
    Sampling,
    Tokenizer,
    TokenLogprob,
    TopLogprob,
)
from gateway.protocols.output import (
    CallPiece,
    OutputFormat,
    OutputParser,
    ParserContext,
    Piece,
    RawPiece,
    ReasoningPiece,
    SpeaksFormat,
    TextPiece,
)
from gateway.protocols.profile import (
    ModelProfile,
    NoConfig,
)
from gateway.protocols.prompt import (
    ChatPrompt,
    NamedTool,
    Prompt,
    PromptRenderer,
    RenderedPrompt,
    Tail,
    TextFormat,
    TokensPrompt,
    ToolChoice,
    ToolDefinition,
    Turn,
)
from gateway.protocols.store import (
    Conversations,
    EventLogs,
    ItemPage,
    Leases,
    Order,
    Responses,
    ResponseStore,
    StoredResponse,
)
from gateway.protocols.tools import (
    ServedTool,
    ToolResult,
    ToolServer,
    ToolSession,
)

__all__ = [
    "CallPiece",
    "Capability",
    "ChatPrompt",
    "Conversations",
    "Engine",
    "EngineOutput",
    "EngineRequest",
    "EventLogs",
    "FinishReason",
    "ItemPage",
    "Leases",
    "ModelInfo",
    "ModelProfile",
    "NamedTool",
    "NoConfig",
    "Order",
    "OutputFormat",
    "OutputParser",
    "ParserContext",
    "Piece",
    "Prompt",
    "PromptRenderer",
    "RawPiece",
    "ReasoningPiece",
    "RenderedPrompt",
    "ResponseStore",
    "Responses",
    "Sampling",
    "ServedTool",
    "SpeaksFormat",
    "StoredResponse",
    "Tail",
    "TextFormat",
    "TextPiece",
    "TokenLogprob",
    "Tokenizer",
    "TokensPrompt",
    "ToolChoice",
    "ToolDefinition",
    "ToolResult",
    "ToolServer",
    "ToolSession",
    "TopLogprob",
    "Turn",
]
