"""Helpers for tools and for APIs that show tool calls: functions as tools, citations, arguments."""

from gateway.items.citations import (
    Citation,
    CitationReader,
    FileMark,
    Piece,
    by_cursor,
    by_mark,
)
from gateway.items.string_field import (
    StringFieldReader,
)
from gateway.tools.call_history import (
    NOT_STORED,
    CallHistory,
    json_text,
)
from gateway.tools.client_functions import (
    qualified_name,
)
from gateway.tools.client_run import (
    call_arguments,
)
from gateway.tools.functions import (
    FUNCTION_THREADS,
    functions,
)

__all__ = [
    "FUNCTION_THREADS",
    "NOT_STORED",
    "CallHistory",
    "Citation",
    "CitationReader",
    "FileMark",
    "Piece",
    "StringFieldReader",
    "by_cursor",
    "by_mark",
    "call_arguments",
    "functions",
    "json_text",
    "qualified_name",
]
