"""The summary of a reasoning item, as far as an event log that breaks off tells it (see `gateway.responses.recovery`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import UNSET

from gateway.wire import events
from gateway.wire.content import SummaryText


class ToldSummary:
    """What is told of one summary."""

    def __init__(self) -> None:
        self.parts: list[SummaryText] = []
        """Those that are told to their end."""
        self.open: str | None = None
        """The text of the part that is not."""
        self._ended = False
        """Whether that text is told to be complete."""

    def take(self, event: events.AnyEvent) -> None:
        """One more event about the item; those that are not about its summary change nothing."""
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
        """Whether `summary` is this one, further on."""
        told = len(self.parts)
        if list(summary[:told]) != self.parts:
            return False
        if self.open is None:
            return True
        if len(summary) == told:
            return False
        text = summary[told].text
        return text == self.open if self._ended else text.startswith(self.open)

    def cut_off(self) -> list[SummaryText]:
        """The summary as it is told."""
        return self.parts if self.open is None else [*self.parts, SummaryText(text=self.open)]

    def missing(
        self, summary: Sequence[SummaryText], *, cut_off: bool
    ) -> Iterator[tuple[Callable[..., events.Event], dict[str, Any]]]:
        """The events that tell the rest of `summary`: what makes each, and its fields besides those of every event.

        `cut_off` says that the item is incomplete.
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
