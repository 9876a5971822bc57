"""Reconstructing the summary of a reasoning item from an incomplete event log (see `gateway.answers.responses.recovery`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import UNSET

from gateway.wire import events
from gateway.wire.content import SummaryText


class SummaryView:
    """The state of one summary according to the log."""

    def __init__(self) -> None:
        self.parts: list[SummaryText] = []
        """The completed parts."""
        self.open: str | None = None
        """The text of the incomplete part, if any."""
        self._ended = False
        """Whether the text in `open` is complete."""

    def take(self, event: events.AnyEvent) -> None:
        """Process an event of the item. Events that do not concern the summary are ignored."""
        match event:
            case events.ReasoningSummaryPartAdded():
                self.open, self._ended = "", False
            case events.ReasoningSummaryTextDelta():
                self.open = (self.open or "") + event.delta
            case events.ReasoningSummaryTextDone():
                self._ended = True
            case events.ReasoningSummaryPartDone():
                self.parts.append(event.part)
                self.open = None
            case _:
                pass

    def fits(self, summary: Sequence[SummaryText]) -> bool:
        """Whether `summary` is a later state of this summary."""
        written = len(self.parts)
        if list(summary[:written]) != self.parts:
            return False
        if self.open is None:
            return True
        if len(summary) == written:
            return False
        text = summary[written].text
        return text == self.open if self._ended else text.startswith(self.open)

    def cut_off(self) -> list[SummaryText]:
        """Return the summary in its logged state."""
        return self.parts if self.open is None else [*self.parts, SummaryText(text=self.open)]

    def missing(
        self, summary: Sequence[SummaryText], *, cut_off: bool
    ) -> Iterator[tuple[Callable[..., events.Event], dict[str, Any]]]:
        """Yield the class of each missing event of `summary`, and its fields other than the common ones.

        `cut_off`: whether the item is incomplete.
        """
        for at in range(len(self.parts), len(summary)):
            part, begun, ended = summary[at], self.open, self.open is not None and self._ended
            self.open = None
            where = {"summary_index": at}
            if begun is None:
                empty = SummaryText(text="")
                yield events.ReasoningSummaryPartAdded, {**where, "part": empty}
            if not ended:
                if rest := part.text[len(begun or "") :]:
                    yield events.ReasoningSummaryTextDelta, {**where, "delta": rest}
                yield events.ReasoningSummaryTextDone, {**where, "text": part.text}
            status = "incomplete" if cut_off else UNSET
            yield events.ReasoningSummaryPartDone, {**where, "part": part, "status": status}
