"""Earlier calls as text, in the model's own syntax, for templates that print only the content of messages."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

from gateway.sdk import CallPiece, OutputFormat, TextPiece
from gateway_chat_template.features import MARKER
from gateway_chat_template.marked_text import AssistantText, concat

Call: TypeAlias = tuple[str, str]
"""Name and arguments, which are JSON text of an object."""
WriteCalls: TypeAlias = Callable[[str, Sequence[Call]], str]
"""Writes text and calls as the model does. What only the syntax says is marked as the template's."""

_TRIAL: Final = ("qztool", '{"qzkey": "qzvalue"}')


def call_writer(output_format: OutputFormat) -> WriteCalls:
    """The writer of calls of a format; of a format that has none, one that writes JSON."""
    try:
        written = output_format.write([CallPiece(*_TRIAL)], tail="text")
    except Exception:
        return write_as_json  # a format that does not write calls says so by any exception
    if not all(word in written for word in ("qztool", "qzkey", "qzvalue")):
        return write_as_json

    def write(text: str, calls: Sequence[Call]) -> str:
        pieces = [CallPiece(*call) for call in calls]
        whole = text + output_format.write(pieces, tail="text")
        if text:
            # What the model writes between text and calls, unless the format frames the text, too.
            joined = output_format.write([TextPiece(text), *pieces], tail="text")
            whole = joined if joined.startswith(text) else whole
        numbers = count()
        harmless = [(f"qz{next(numbers)}", _harmless(call[1], numbers)) for call in calls]
        like = output_format.write([CallPiece(*call) for call in harmless], tail="text")
        start = len(text)
        return concat([AssistantText(whole[:start]), _marked(whole[start:], like)])

    return write


def write_as_json(text: str, calls: Sequence[Call]) -> str:
    """Text and calls, as lines of JSON, for models whose syntax is not known."""
    lines = [
        f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}' for name, arguments in calls
    ]
    return AssistantText("\n".join([text, *lines] if text else lines))


def _marked(written: str, like: str) -> str:
    """Calls with the markers of their syntax marked as the template's. `like` are calls of the same shape without words of the model.

    A marker that the model's words contain as well cannot be told from the syntax: all of its kind stay the assistant's text, except
    the first and the last of the whole text.
    """
    expected, found = Counter(MARKER.findall(like)), Counter(MARKER.findall(written))
    parts: list[str] = []
    at = 0
    for marker in MARKER.finditer(written):
        text = marker[0]
        outermost = (marker.start() == 0 and like.startswith(text)) or (
            marker.end() == len(written) and like.endswith(text)
        )
        if expected[text] == found[text] or outermost:
            parts += [AssistantText(written[at : marker.start()]), text]
            at = marker.end()
    return concat([*parts, AssistantText(written[at:])])


def _harmless(arguments: str, numbers: Any) -> str:
    """JSON of the same shape, with words in place of texts."""
    return re.sub(
        r'"(?:[^"\\]|\\.)*"',
        lambda _: f'"qz{next(numbers)}"',
        arguments,
    )
