"""The grammar of a stream of chat chunks, as `gateway conform` checks it."""

from gateway_conform.chat_stream import fold_chunks, parse_chunks
from gateway_conform.response_stream import GrammarError

__all__ = ["GrammarError", "fold_chunks", "parse_chunks"]
