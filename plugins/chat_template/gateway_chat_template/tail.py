"""Derives from the end of a prompt where the output starts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from gateway.sdk import Tail

THINKING_MARKERS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<reasoning>", "</reasoning>"),
    ("◁think▷", "◁/think▷"),
    ("<|open|>think<|sep|>", "<|open|>response<|sep|>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<ifm|think>", "</ifm|think>"),
    ("<|content_thinking|>", "<|content_text|>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
)
"""Reasoning markers of the known families: start and end."""

_WINDOW = 4096


class TailFinder:
    """Finds the tails of prompts by pairs of reasoning markers: start and end."""

    def __init__(self, markers: Sequence[tuple[str, ...]] = THINKING_MARKERS) -> None:
        self._markers = markers
        self._all = tuple(chain.from_iterable(markers))

    def tail_of(self, prompt: str) -> Tail:
        """`reasoning` if the prompt ends with a start marker, `text` if it ends with an end marker.

        Only white space may follow the marker. User text is never last, because the template's own markup follows it.
        """
        # The slice of a plain string has no marks of origins, which cost time to cut.
        end = str.__getitem__(prompt, slice(-_WINDOW, None)).rstrip()
        if not end.endswith(self._all):
            return "unknown"  # as of most models: one check for all families
        for opening, closing in self._markers:
            if end.endswith(opening):
                return "reasoning"
            if end.endswith(closing):
                return "text"
        return "unknown"
