"""Determines which markers are active in each state of the machine."""

from __future__ import annotations

from msgspec import Struct

from gateway.sdk import CallPiece, Tokenizer
from gateway_parsers.kit.call_markup import CallMarkup
from gateway_parsers.kit.markers import Marker, MarkerSet, Where
from gateway_parsers.kit.syntax import CallSyntax
from gateway_parsers.spec import TURN_ENDS, FormatSpec


class State(Struct, frozen=True):
    """The state that determines the active markers."""

    inside: bool
    """Whether inside reasoning rather than text."""
    calls: bool
    """Whether calls are recognized."""
    ended_by_call: bool = False
    """A call ended unclosed reasoning: the close marker may still follow and is hidden."""
    unclosed_call: bool = False
    """A call's end marker is missing: it may still follow and is hidden."""
    framed: bool = False
    """Whether the text is enclosed in a frame."""
    malformed_call: bool = False
    """A call could not be read: the rest of its markup is hidden."""
    verbatim: bool = False
    """What looked like a call without its outer markers is text: so is the rest of its markup."""
    fresh: bool = False
    """The open block is empty so far. Always False for formats without `fresh_starts`."""


class ActiveMarkers:
    """The marker sets of one format, each created once."""

    def __init__(self, spec: FormatSpec, tokenizer: Tokenizer | None = None) -> None:
        self._spec = spec
        self._tokenizer = tokenizer
        self._firsts: dict[str, str] = {}
        """For each marker, the text of its first token."""
        self._sets: dict[State, MarkerSet] = {}
        self.call_markup = _markup_of(spec.calls)
        marks = spec.reasoning
        self.special = marks is not None and marks.call_ends_it == "always"
        """Whether the markers are special tokens, which are never prose."""
        self.fresh_starts: tuple[str, ...] = getattr(spec.calls, "fresh_starts", ())
        """Starts of calls that count only at the start of a block."""

    def of(self, state: State) -> MarkerSet:
        """The markers that are active in `state`."""
        found = self._sets.get(state)
        if found is None:
            found = self._sets[state] = MarkerSet(self._markers(state))
        return found

    def cuts_token(self, beginning: str, markers: MarkerSet) -> bool:
        """Whether `beginning`, with which `markers` begin, would cut the first token of each of them. The model writes
        a token whole, so this is text."""
        tokenizer = self._tokenizer
        if tokenizer is None:
            return False
        for marker in markers.beginning(beginning):
            text = marker.text
            first = self._firsts.get(text)
            if first is None:
                first = self._firsts[text] = tokenizer.decode(tokenizer.encode(text)[:1])
            if marker.action == "turn_end" and first != text:
                continue  # another family's
            if len(first) <= len(beginning) or not first.startswith(beginning):
                return False
        return True

    def _markers(self, state: State) -> list[Marker]:
        markers: list[Marker] = []
        frame = self._spec.frame
        if frame is not None and not state.inside:
            ends_here = frame.special or state.framed
            opens: Where = "anywhere" if ends_here else "line"
            markers += [Marker(text, "frame", opens) for text in frame.opens]
            closes: Where = "anywhere" if ends_here else "fresh"
            markers += [Marker(text, "frame", closes) for text in frame.closes]
        elif frame is not None:
            markers += [Marker(text, "frame") for text in frame.ends_reasoning]
        marks = self._spec.reasoning
        if marks is not None and state.inside:
            markers += [Marker(text, "close") for text in marks.closes]
            markers += [Marker(text, "swallow", "fresh") for text in marks.opens]
            if self.special:
                markers += [Marker(text, "hide") for text in marks.opens if _is_special(text)]
        elif marks is not None:
            markers += [Marker(text, "open", marks.open_where) for text in marks.opens]
            late: Where = "anywhere" if state.ended_by_call else "line"
            markers += [Marker(text, "swallow", late) for text in marks.closes]
            # At the end of a line it ends thinking that was ended before; within one it may be prose.
            markers += [Marker(f"{text}\n\n", "swallow", "unquoted") for text in marks.closes]
            markers += [Marker(text, "swallow", "last") for text in marks.closes]
        syntax = self._spec.calls
        if syntax is not None and state.calls:
            certain = state.inside and self.special
            text_starts: frozenset[str] = getattr(syntax, "text_starts", frozenset())
            for start in syntax.starts:
                if certain and start in text_starts:
                    continue
                if start in self.fresh_starts:
                    if state.fresh and not state.inside:
                        markers.append(Marker(start, "call", "fresh"))
                elif start not in syntax.bare:
                    where: Where = "unquoted" if state.inside else "anywhere"
                    markers.append(Marker(start, "call", where))
                elif not state.inside:
                    markers.append(Marker(start, "call", "unquoted"))
            special = self.special
            for end in () if state.inside else syntax.ends:
                stray = (
                    state.unclosed_call
                    or state.malformed_call
                    or (special and not state.verbatim and end.startswith("<"))
                )
                late = "anywhere" if stray else "fresh"
                markers.append(Marker(end, "swallow", late))
            if special and not (state.inside or state.malformed_call or state.verbatim):
                taken = {marker.text for marker in markers}
                stray_marks = (text for text in self.call_markup.complete if text not in taken)
                markers += [Marker(text, "hide") for text in stray_marks if text.startswith("<")]
            if state.malformed_call and not state.inside:
                taken = {marker.text for marker in markers}
                whole = (text for text in self.call_markup.complete if text not in taken)
                markers += [Marker(text, "call_markup") for text in whole]
                markers += [
                    Marker(text, "tag") for text in self.call_markup.tags if text not in taken
                ]
        markers += [Marker(text, "hide") for text in self._spec.hidden]
        markers += [Marker(text, "hidden_tag") for text in self._spec.hidden_tags]
        if marks is not None or syntax is not None:
            taken = {marker.text for marker in markers}
            markers += [
                Marker(text, "turn_end", "last")
                for text in (*TURN_ENDS, *self._spec.turn_ends)
                if text not in taken
            ]
        return markers


def _is_special(text: str) -> bool:
    """Whether a marker looks like a special token, which is never prose."""
    return "|" in text or "｜" in text


def _markup_of(syntax: CallSyntax | None) -> CallMarkup:
    if syntax is None:
        return CallMarkup((), "")
    written = syntax.write([CallPiece("f", "{}")])
    outer_end = max(syntax.ends, key=written.rfind, default="")
    return CallMarkup((*syntax.markup, *syntax.ends), outer_end)
