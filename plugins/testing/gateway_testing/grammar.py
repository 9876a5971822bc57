"""The grammar of a response's event stream, as `gateway conform` checks it."""

from gateway_conform.response_stream import TERMINAL, GrammarError, Json, fold, parse_sse

__all__ = ["TERMINAL", "GrammarError", "Json", "fold", "parse_sse"]
