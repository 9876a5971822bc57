"""Creating item builders, with and without events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from gateway.assembly.item_builders.announced import EventCollector
from gateway.assembly.item_builders.approval import AnnouncedApprovalRequest, ApprovalRequestBuilder
from gateway.assembly.item_builders.cited_message import AnnouncedCitedMessage, CitedMessageBuilder
from gateway.assembly.item_builders.client_call import AnnouncedClientCall, ClientCallBuilder
from gateway.assembly.item_builders.code_interpreter import (
    AnnouncedCodeInterpreterCall,
    CodeInterpreterCallBuilder,
)
from gateway.assembly.item_builders.file_search import (
    AnnouncedFileSearchCall,
    FileSearchCallBuilder,
)
from gateway.assembly.item_builders.function_call import (
    AnnouncedCustomCall,
    AnnouncedFunctionCall,
    CustomCallBuilder,
    FunctionCallBuilder,
)
from gateway.assembly.item_builders.mcp_call import AnnouncedMcpCall, McpCallBuilder
from gateway.assembly.item_builders.message import AnnouncedMessage, MessageBuilder
from gateway.assembly.item_builders.reasoning import (
    AnnouncedReasoning,
    AnnouncedSummarizedReasoning,
    ReasoningBuilder,
    SummarizedReasoningBuilder,
)
from gateway.assembly.item_builders.shell_call import AnnouncedShellCall, ShellCallBuilder
from gateway.assembly.item_builders.web_search import AnnouncedWebSearchCall, WebSearchCallBuilder

P = ParamSpec("P")
BuilderT = TypeVar("BuilderT")


class BuilderFactory(Protocol):
    """Creates item builders."""

    def __call__(self, kind: Callable[P, BuilderT], *args: P.args, **kwargs: P.kwargs) -> BuilderT:
        """A builder of the class `kind`, or of a subclass of it, made from the arguments of `kind`."""
        ...


def plain_builder(kind: Callable[P, BuilderT], *args: P.args, **kwargs: P.kwargs) -> BuilderT:
    """The `BuilderFactory` of builders that only build."""
    return kind(*args, **kwargs)


ANNOUNCED: Final[Mapping[Any, Callable[..., Any]]] = {
    ApprovalRequestBuilder: AnnouncedApprovalRequest,
    CitedMessageBuilder: AnnouncedCitedMessage,
    ClientCallBuilder: AnnouncedClientCall,
    CodeInterpreterCallBuilder: AnnouncedCodeInterpreterCall,
    CustomCallBuilder: AnnouncedCustomCall,
    FileSearchCallBuilder: AnnouncedFileSearchCall,
    FunctionCallBuilder: AnnouncedFunctionCall,
    McpCallBuilder: AnnouncedMcpCall,
    MessageBuilder: AnnouncedMessage,
    ReasoningBuilder: AnnouncedReasoning,
    ShellCallBuilder: AnnouncedShellCall,
    SummarizedReasoningBuilder: AnnouncedSummarizedReasoning,
    WebSearchCallBuilder: AnnouncedWebSearchCall,
}
"""Maps the class of each item builder to the class that also announces the item."""


class AnnouncedBuilders:
    """The `BuilderFactory` of builders that announce their items."""

    def __init__(self, events: EventCollector) -> None:
        self._events = events

    def __call__(self, kind: Callable[P, BuilderT], *args: P.args, **kwargs: P.kwargs) -> BuilderT:
        builder = ANNOUNCED[kind](*args, **kwargs)
        builder.events = self._events
        made: BuilderT = builder
        return made
