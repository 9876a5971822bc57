"""Item builders: each builds one output item while the model writes it, and the item's events.

There is one module per family of item types. An item is begun once, written to, and closed once. The item is created
when it closes, and that same object is used in the events, the final response and the store. A builder whose `events`
is None makes no events.
"""

from gateway.assembly.item_builders.approval import ApprovalRequestBuilder as ApprovalRequestBuilder
from gateway.assembly.item_builders.cited_message import CitedMessageBuilder as CitedMessageBuilder
from gateway.assembly.item_builders.client_call import ClientCallBuilder as ClientCallBuilder
from gateway.assembly.item_builders.code_interpreter import (
    CodeInterpreterCallBuilder as CodeInterpreterCallBuilder,
)
from gateway.assembly.item_builders.compaction import CompactionBuilder as CompactionBuilder
from gateway.assembly.item_builders.events import EventCollector as EventCollector
from gateway.assembly.item_builders.events import EventList as EventList
from gateway.assembly.item_builders.function_call import CustomCallBuilder as CustomCallBuilder
from gateway.assembly.item_builders.function_call import FunctionCallBuilder as FunctionCallBuilder
from gateway.assembly.item_builders.item import EndStatus as EndStatus
from gateway.assembly.item_builders.item import ItemBuilder as ItemBuilder
from gateway.assembly.item_builders.item import ServerCallBuilder as ServerCallBuilder
from gateway.assembly.item_builders.mcp import McpCallBuilder as McpCallBuilder
from gateway.assembly.item_builders.mcp import ToolListBuilder as ToolListBuilder
from gateway.assembly.item_builders.message import MessageBuilder as MessageBuilder
from gateway.assembly.item_builders.reasoning import ReasoningBuilder as ReasoningBuilder
from gateway.assembly.item_builders.reasoning import (
    SummarizedReasoningBuilder as SummarizedReasoningBuilder,
)
from gateway.assembly.item_builders.search import FileSearchCallBuilder as FileSearchCallBuilder
from gateway.assembly.item_builders.search import WebSearchCallBuilder as WebSearchCallBuilder
from gateway.assembly.item_builders.shell_call import ShellCallBuilder as ShellCallBuilder
