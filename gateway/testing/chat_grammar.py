"""The grammar of a stream of chat chunks, as `gateway conform` checks it."""

from gateway.conform.chat_stream import fold_chunks, parse_chunks

__all__ = ["fold_chunks", "parse_chunks"]
