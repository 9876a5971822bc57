"""The text of tool results: notes for images, and limits."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.protocols import ToolImage


def with_notes(text: str, images: Sequence[ToolImage]) -> str:
    """`text`, with a note in the place of each image."""
    parts: list[str] = []
    after: list[str] = []
    end = 0
    for image in sorted(images, key=lambda each: len(text) if each.place is None else each.place):
        note = image.note
        if note is None:
            note = f"[{image.media_type}, {len(image.data)} bytes: cannot be shown here]"
        if not note:
            continue
        if image.place is None or image.place >= len(text):
            after.append(note)
        else:
            place = max(image.place, 0)
            parts += text[end:place], note, "\n"
            end = place
    return "\n".join(filter(None, ["".join([*parts, text[end:]]), *after]))


def cut(text: str, max_bytes: int) -> str:
    """`text`, truncated to `max_bytes` bytes of UTF-8 with a note if it is longer.

    The result can always be encoded: lone surrogates are replaced by question marks.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    kept = data[:max_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[Cut off: the tool gave {len(data)} bytes, of which these are the first {max_bytes}.]"
