"""The item that is being written: what it is called on the wire, and which events tell of it.

One class per item type, one module each. An item is opened once, written to, and closed once; it is built when it closes,
and that object is what the events, the final response and the store hold.
"""

from gateway.responses.open_item.approval import OpenApprovalRequest as OpenApprovalRequest
from gateway.responses.open_item.cited_message import OpenCitedMessage as OpenCitedMessage
from gateway.responses.open_item.client_call import OpenClientCall as OpenClientCall
from gateway.responses.open_item.code_interpreter import (
    OpenCodeInterpreterCall as OpenCodeInterpreterCall,
)
from gateway.responses.open_item.compaction import OpenCompaction as OpenCompaction
from gateway.responses.open_item.file_search import OpenFileSearchCall as OpenFileSearchCall
from gateway.responses.open_item.function_call import OpenCustomCall as OpenCustomCall
from gateway.responses.open_item.function_call import OpenFunctionCall as OpenFunctionCall
from gateway.responses.open_item.item import EndStatus as EndStatus
from gateway.responses.open_item.item import NextSequence as NextSequence
from gateway.responses.open_item.item import OpenItem as OpenItem
from gateway.responses.open_item.item import OpenServerCall as OpenServerCall
from gateway.responses.open_item.item import Out as Out
from gateway.responses.open_item.mcp_call import OpenMcpCall as OpenMcpCall
from gateway.responses.open_item.message import OpenMessage as OpenMessage
from gateway.responses.open_item.reasoning import OpenReasoning as OpenReasoning
from gateway.responses.open_item.shell_call import OpenShellCall as OpenShellCall
from gateway.responses.open_item.summarized_reasoning import (
    OpenSummarizedReasoning as OpenSummarizedReasoning,
)
from gateway.responses.open_item.web_search import OpenWebSearchCall as OpenWebSearchCall
