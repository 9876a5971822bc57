"""What a model reads of a tool's output."""

from __future__ import annotations


def cut(text: str, max_bytes: int) -> str:
    """`text`, shortened to so many bytes of UTF-8 where it has more, with a note that says so.

    Always encodable: a lone surrogate, which some decoders make of broken text, becomes a question mark.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    kept = data[:max_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[Cut off: the tool gave {len(data)} bytes, of which these are the first {max_bytes}.]"
