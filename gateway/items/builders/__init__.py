"""Item builders: each builds one output item while the model writes it, and the item's events.

There is one module per family of item types. An item is begun once, written to, and closed once. The item is created
when it closes, and that same object is used in the events, the final response and the store. A builder whose `events`
is None makes no events.
"""

from gateway.items.builders.approval import ApprovalRequestBuilder as ApprovalRequestBuilder
from gateway.items.builders.cited_message import CitedMessageBuilder as CitedMessageBuilder
from gateway.items.builders.client_call import ClientCallBuilder as ClientCallBuilder
from gateway.items.builders.code_interpreter import (
    CodeInterpreterCallBuilder as CodeInterpreterCallBuilder,
)
from gateway.items.builders.compaction import CompactionBuilder as CompactionBuilder
from gateway.items.builders.events import EventCollector as EventCollector
from gateway.items.builders.events import EventList as EventList
from gateway.items.builders.function_call import CustomCallBuilder as CustomCallBuilder
from gateway.items.builders.function_call import FunctionCallBuilder as FunctionCallBuilder
from gateway.items.builders.item import EndStatus as EndStatus
from gateway.items.builders.item import ItemBuilder as ItemBuilder
from gateway.items.builders.item import ServerCallBuilder as ServerCallBuilder
from gateway.items.builders.mcp import McpCallBuilder as McpCallBuilder
from gateway.items.builders.mcp import ToolListBuilder as ToolListBuilder
from gateway.items.builders.message import MessageBuilder as MessageBuilder
from gateway.items.builders.reasoning import ReasoningBuilder as ReasoningBuilder
from gateway.items.builders.reasoning import (
    SummarizedReasoningBuilder as SummarizedReasoningBuilder,
)
from gateway.items.builders.search import FileSearchCallBuilder as FileSearchCallBuilder
from gateway.items.builders.search import WebSearchCallBuilder as WebSearchCallBuilder
from gateway.items.builders.shell_call import ShellCallBuilder as ShellCallBuilder
