"""Item builders: the wire form of the item that is being written, and its events.

There is one module per item type. It has a class that builds the item, and an `Announced` one that also makes its events, if the
client sees them. An item is begun once, written to, and closed once. It is built when it closes, and that same object is
used in the events, the final response and the store.
"""

from gateway.assembly.item_builders.announced import Announced as Announced
from gateway.assembly.item_builders.announced import EventCollector as EventCollector
from gateway.assembly.item_builders.announced import EventList as EventList
from gateway.assembly.item_builders.approval import ApprovalRequestBuilder as ApprovalRequestBuilder
from gateway.assembly.item_builders.cited_message import CitedMessageBuilder as CitedMessageBuilder
from gateway.assembly.item_builders.client_call import ClientCallBuilder as ClientCallBuilder
from gateway.assembly.item_builders.code_interpreter import (
    CodeInterpreterCallBuilder as CodeInterpreterCallBuilder,
)
from gateway.assembly.item_builders.compaction import AnnouncedCompaction as AnnouncedCompaction
from gateway.assembly.item_builders.factory import ANNOUNCED as ANNOUNCED
from gateway.assembly.item_builders.factory import AnnouncedBuilders as AnnouncedBuilders
from gateway.assembly.item_builders.factory import BuilderFactory as BuilderFactory
from gateway.assembly.item_builders.factory import plain_builder as plain_builder
from gateway.assembly.item_builders.file_search import (
    FileSearchCallBuilder as FileSearchCallBuilder,
)
from gateway.assembly.item_builders.function_call import CustomCallBuilder as CustomCallBuilder
from gateway.assembly.item_builders.function_call import FunctionCallBuilder as FunctionCallBuilder
from gateway.assembly.item_builders.item import EndStatus as EndStatus
from gateway.assembly.item_builders.item import ItemBuilder as ItemBuilder
from gateway.assembly.item_builders.item import ServerCallBuilder as ServerCallBuilder
from gateway.assembly.item_builders.mcp_call import McpCallBuilder as McpCallBuilder
from gateway.assembly.item_builders.message import AnnouncedMessage as AnnouncedMessage
from gateway.assembly.item_builders.message import MessageBuilder as MessageBuilder
from gateway.assembly.item_builders.reasoning import AnnouncedReasoning as AnnouncedReasoning
from gateway.assembly.item_builders.reasoning import ReasoningBuilder as ReasoningBuilder
from gateway.assembly.item_builders.reasoning import (
    SummarizedReasoningBuilder as SummarizedReasoningBuilder,
)
from gateway.assembly.item_builders.search_call import SearchCallBuilder as SearchCallBuilder
from gateway.assembly.item_builders.shell_call import ShellCallBuilder as ShellCallBuilder
from gateway.assembly.item_builders.tool_list import AnnouncedToolList as AnnouncedToolList
from gateway.assembly.item_builders.web_search import WebSearchCallBuilder as WebSearchCallBuilder
