"""The machine: reads reasoning, text and calls in one pass over a model's output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from gateway.sdk import (
    BlockEnded,
    CallEnded,
    CitationEnded,
    CitationStarted,
    Delta,
    EngineOutput,
    FinishReason,
    ParserContext,
    ReasoningDelta,
    TextDelta,
)
from gateway.sdk.parsers import OutputSpan, ReasoningMeter
from gateway_parsers.kit.active_markers import ActiveMarkers, State
from gateway_parsers.kit.call_markup import HiddenReader, HiddenTagReader, TitleReader
from gateway_parsers.kit.citations import NumberedSources
from gateway_parsers.kit.markers import QUOTES, WHITESPACE, Marker, MarkerContext, MarkerSet
from gateway_parsers.kit.syntax import Accept, CallReader
from gateway_parsers.spec import FormatSpec

_NUMBERS: Final = re.compile(r"[\d\s,:\[\]]")
"""Characters of a citation's tag, such as `</co: 0:[1,2]>`."""
_IN_TAG: Final = re.compile(r"[^<\n]")
_MIN_OPENER: Final = 3
"""Length from which the beginning of a marker, at a limit, is hidden if it starts a line or a block."""
_LONG_OPENER: Final = 6
"""Length from which it is hidden anywhere, and that of a special token also where no limit ended the output."""
_SPECIAL: Final = ("|", "｜", "]<]")
"""Texts that special tokens have, and the tags of prose and code have not."""


_NO_MARK: Final = "\0"
"""Stands for the first character of a marker where there are no markers."""


class _ShortPath:
    """What nearly every token uses. A base class, so that it is adjacent in memory: a stream's memory is seldom in the
    processor's caches when its next token comes."""

    __slots__ = ("_fed", "_kind", "_mark", "_position")

    _fed: int
    """Number of characters fed so far."""
    _kind: type[TextDelta | ReasoningDelta] | None
    """The kind of the open block, if only a block is open: text without a possible marker is then emitted directly."""
    _mark: str
    """The first character of all active markers; empty if it is not the same for all."""
    _position: MarkerContext


class Machine(_ShortPath):
    """Parses one generation; an `OutputParser`.

    White space next to markup belongs to the markup: it is dropped before a marker, and after one except for the
    indentation of the first line of text. So white space is held until the next character is known. Everything else is
    emitted as it arrives.
    """

    __slots__ = (
        "_active",
        "_after_markup",
        "_bare",
        "_break",
        "_citation",
        "_ended_by_call",
        "_framed",
        "_gap",
        "_held",
        "_in_line",
        "_last",
        "_limited",
        "_malformed_call",
        "_marker",
        "_meter",
        "_out",
        "_plain",
        "_possible_call",
        "_quoted",
        "_reader",
        "_reasoning",
        "_sets",
        "_sources",
        "_spaces",
        "_spaces_length",
        "_spec",
        "_syntax",
        "_tools",
        "_unclosed_call",
        "_verbatim",
        "reasoning_tokens",
        "recoveries",
    )
    # So many attributes would take a KiB and a half in a dictionary, which each token goes through.

    def __init__(self, spec: FormatSpec, sets: ActiveMarkers, context: ParserContext) -> None:
        start = context.tail
        if start == "unknown":
            start = spec.reasoning.default_start if spec.reasoning is not None else "text"
        self._spec = spec
        self._sets = sets
        self._tools = context.tools
        self._syntax = spec.calls if context.parse_tools else None
        self._reasoning = start == "reasoning" and spec.reasoning is not None
        self._meter = ReasoningMeter(context.tokenizer, reasoning=self._reasoning)
        self.reasoning_tokens = 0
        self.recoveries = 0

        self._out: list[Delta] = []
        self._held = ""
        """Trailing text that cannot be classified yet; never longer than a marker or a name."""
        self._spaces: list[str] = []
        """Trailing white space, held until it is known what follows."""
        self._spaces_length = 0
        self._fed = 0
        self._position = MarkerContext()
        self._after_markup = self._reasoning
        """Whether the open block follows markup, so that its leading white space is dropped."""
        self._break = False
        """Whether the next block is a new one even if it has the kind of the last."""
        self._last: type[Delta] | None = None
        self._reader: CallReader | None = None
        self._bare = False
        """Whether the text in the reader started like ordinary text."""
        self._possible_call: OutputSpan | None = None
        """The span of reasoning that may turn out to be a call."""
        self._ended_by_call = False
        """A call ended unclosed reasoning: the close marker may still follow."""
        self._unclosed_call = False
        """A call's end marker is missing and may still follow."""
        self._malformed_call = False
        """A call could not be read: the rest of its markup is hidden."""
        self._verbatim = False
        """What looked like a call without its outer markers is text: so is the rest of its markup."""
        self._gap: tuple[str, int] | None = None
        """White space before hidden markup of such a call, and its offset. That after it is dropped instead."""
        self._marker = ""
        """The marker that started the open call."""
        self._in_line = False
        """Whether it is within a line of text."""
        self._quoted = False
        """Whether it directly follows a quotation mark."""
        self._limited = False
        """Whether a limit ended the output."""
        self._sources = (
            NumberedSources(context.turn) if spec.cites and context.turn is not None else None
        )
        self._citation: Literal["none", "waiting", "open"] = "none"
        """State of a citation: its tag was read, or also the beginning of its text."""
        self._framed = False
        """Whether the text is enclosed in a frame, whose end is hidden."""
        self._active = self._markers()
        self._plain = not self._active.longest
        if spec.lead and context.tail != "text":
            self._out.append(TextDelta(spec.lead))
            self._last = TextDelta
        if spec.frame is not None and spec.frame.titled and not self._reasoning:
            self._reader = TitleReader(spec.frame.title_end)
        self._kind = None
        self._mark = ""

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        text = output.text
        # Nearly every token takes this path: keep it minimal.
        if (
            (kind := self._kind) is not None
            and text
            and (before := text[-1]) not in WHITESPACE
            and (mark not in text if (mark := self._mark) else self._has_no_marker(text))
        ):
            start = self._fed
            self._fed = start + len(text)
            self._position.before = before
            if kind is TextDelta:
                return (TextDelta(text, start),)
            self.reasoning_tokens = self._meter.total = self._meter.total + len(output.token_ids)
            return (ReasoningDelta(text),)
        if text:
            self._fed += len(text)
            self._advance(self._held + text if self._held else text, final=False)
        if output.token_ids:
            meter = self._meter
            if meter.settled and not self._held:
                meter.add(len(output.token_ids))
            else:
                meter.count(text, output.token_ids, self._fed, len(self._held))
            self.reasoning_tokens = meter.total
        if (
            self._reader is not None
            or self._position.fresh
            or self._held
            or self._spaces
            or not self._meter.settled
            or self._gap is not None
            or self._citation == "waiting"
        ):
            self._kind = None
        else:
            self._kind = ReasoningDelta if self._reasoning else TextDelta
            self._mark = self._active.only_first if self._active.firsts else _NO_MARK
        return self._take_deltas()

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        self._limited = reason == "length"
        if self._held or self._reader is not None:
            self._advance(self._held, final=True)
        reader = self._reader
        if reader is not None:
            reader.finish(stopped=reason == "stop")
            self._drain(reader, self._fed, True)
        dropped = self._malformed_call or (
            self._position.fresh and (self._after_markup or self._last)
        )
        if self._spaces and not dropped:
            self._write("".join(self._spaces), self._fed - self._spaces_length)
        self._meter.finish()
        self.reasoning_tokens = self._meter.total
        return self._take_deltas()

    def _take_deltas(self) -> Sequence[Delta]:
        if not self._out:
            return ()
        out, self._out = self._out, []
        return out

    def _has_no_marker(self, text: str) -> bool:
        """Whether no active marker can start in `text`."""
        for first in self._active.firsts:  # noqa: SIM110  # all() with a generator costs more than the rest of the token
            if first in text:
                return False
        return True

    def _markers(self) -> MarkerSet:
        state = State(
            inside=self._reasoning,
            calls=self._syntax is not None,
            ended_by_call=self._ended_by_call,
            unclosed_call=self._unclosed_call,
            framed=self._framed,
            malformed_call=self._malformed_call,
            verbatim=self._verbatim,
            fresh=self._position.fresh and bool(self._sets.fresh_starts),
        )
        return self._sets.of(state)

    def _advance(self, text: str, *, final: bool) -> None:
        """Process `text`: held text and new text."""
        pos = 0
        base = self._fed - len(text)
        while True:
            reader = self._reader
            if reader is not None:
                start = pos
                pos = reader.read(text, pos, final=final)
                if pos > start:
                    self._position.before = text[pos - 1]
                self._drain(reader, base + pos, final)
                if self._reader is reader:
                    break
                if final and self._limited and self._malformed_call:
                    pos = len(text)
                    break
                continue
            hit = self._active.find(text, pos, self._position, final=final)
            if hit is None:
                end = len(text)
                if not final:
                    end -= self._active.held(text, pos, self._position)
                    self._append(text[pos:end], base + pos)
                    pos = end
                else:
                    end -= self._dropped_end(text, pos)
                    self._append(text[pos:end], base + pos)
                    if end < len(text):
                        self._drop_spaces()
                    pos = len(text)
                break
            start, marker = hit
            self._append(text[pos:start], base + pos)
            quoted_from = self._position.before
            pos = start + len(marker.text)
            self._position.before = marker.text[-1]
            self._act(marker, base + pos, quoted_from)
        self._held = text[pos:]

    def _dropped_end(self, text: str, pos: int) -> int:
        """The length of the end of an output that is the beginning of a marker, and so no text."""
        if self._malformed_call and not self._reasoning:
            return self._sets.call_markup.partial(text, pos)
        length = self._active.held(text, pos, self._position)
        start = len(text) - length
        if not length or self._sets.cuts_token(text[start:], self._active):
            return 0
        if self._sets.special and "|>" in text[start:]:
            return length  # a whole special token
        if length < _MIN_OPENER or not self._is_markup(text[start:]):
            return 0
        special = self._sets.special or any(mark in text[start:] for mark in _SPECIAL)
        if not self._limited:
            return length if special and length >= _LONG_OPENER else 0
        before = text[start - 1] if start > pos else self._position.before
        starts = before in ("\n", "") or (
            self._position.fresh and not text[pos:start].strip(WHITESPACE)
        )
        return length if starts or special or length >= _LONG_OPENER else 0

    def _is_markup(self, text: str) -> bool:
        """Whether `text`, the beginning of a marker, is unlikely to be prose or plain JSON."""
        bare = self._syntax.bare if self._syntax is not None else ()
        return not text[0].isalnum() and not any(start.startswith(text) for start in bare)

    def _act(self, marker: Marker, offset: int, before: str) -> None:
        """Act on a marker that ends at `offset`."""
        start = offset - len(marker.text)
        if marker.action == "call":
            self._begin_call(marker.text, offset, before)
            return
        if marker.action == "hide":
            self._write_spaces(start)
            return
        if marker.action == "hidden_tag":
            self._reader = HiddenTagReader(marker.text, _NUMBERS)
            return
        if marker.action == "call_markup":
            self._hide_markup(start)
            return
        if marker.action == "tag":
            self._hide_markup(start)
            self._reader = HiddenTagReader(marker.text, _IN_TAG, self._sets.call_markup.tag_end)
            return
        if marker.action == "swallow" and self._malformed_call and not self._reasoning:
            self._hide_markup(start)
            if marker.text == self._sets.call_markup.outer_end:
                self._malformed_call = False
                self._active = self._markers()
            return
        if marker.action == "turn_end":
            self._drop_spaces()
            return
        if marker.action == "open":
            self._reasoning = True
            self._meter.begin_span(offset, True)
            self._break = self._last is ReasoningDelta
        elif marker.action == "close":
            self._reasoning = False
            self._meter.begin_span(offset, False)
        elif marker.action == "frame":
            if self._reasoning:
                self._reasoning = False
                self._meter.begin_span(offset, False)
                self.recoveries += 1
            self._break = self._break or not self._position.fresh
            self._framed = marker.text in self._spec.frame_opens
            frame = self._spec.frame
            if frame is not None and marker.text == frame.titled:
                self._reader = TitleReader(frame.title_end)
        else:
            self.recoveries += 1
            self._unclosed_call = False
            self._ended_by_call = False
            self._break = self._break or not self._position.fresh
        self._new_block()

    def _new_block(self) -> None:
        self._drop_spaces()
        self._position.fresh = True
        self._after_markup = True
        self._verbatim = False
        self._citation = "none"
        self._active = self._markers()

    def _begin_call(self, marker: str, offset: int, before: str) -> None:
        assert self._syntax is not None
        accept: Accept | None = None
        spec = self._spec.reasoning
        if self._reasoning and spec is not None and spec.call_ends_it == "known":
            if self._tools:
                accept = self._tools.__contains__
            elif before not in ("\n", "") and not self._position.fresh:
                accept = _refuse
        if self._reasoning:
            self._possible_call = self._meter.begin_span(offset, None)
        if marker in self._syntax.bare and self._tools:
            accept = (
                self._offered_or_undecided if self._position.fresh else self._tools.__contains__
            )
        self._bare = marker in self._syntax.bare
        self._marker = marker
        self._in_line = before not in ("\n", "") and not self._position.fresh
        self._quoted = before != "" and before in QUOTES
        self._reader = self._syntax.reader(marker, accept, self._tools)

    def _offered_or_undecided(self, name: str) -> bool | None:
        return name in self._tools or None

    def _drain(self, reader: CallReader, offset: int, final: bool) -> None:
        """Take the output of `reader` up to `offset`, and drop the reader if it is done."""
        if reader.out:
            self._call_is_certain()
            self._out += reader.out
            self._last = type(reader.out[-1])
            reader.out.clear()
        if reader.status == "more":
            return
        self._reader = None
        if isinstance(reader, HiddenReader):
            if final and self._limited and reader.status == "failed":
                self._drop_spaces()  # the beginning of hidden markup
            else:
                self._end_hidden(reader, offset)
            return
        self._unclosed_call = reader.unclosed
        if reader.status == "done":
            self.recoveries += reader.recoveries
            self._call_is_certain()
            self._malformed_call = False
            self._new_block()
            return
        if not self._bare or reader.unclosed:
            self.recoveries += reader.recoveries + 1
        raw = reader.raw
        if self._possible_call is not None:
            self._meter.settle(self._possible_call, reasoning=True)
            self._possible_call = None
        elif self._last is CallEnded:
            self._new_block()
        cut_off = self._limited or (offset == self._fed and self._is_header())
        if final and cut_off and not self._bare:
            # The call ends before its name: there is nothing to call, and its markup is not text.
            self._malformed_call = True
            self._drop_spaces()
        elif self._is_malformed_call(reader, raw, final=final):
            self._show_malformed_call(raw, offset, final=final)
        else:
            self._verbatim = self._verbatim or reader.verbatim
            self._active = self._markers()
            self._append(raw, offset - len(raw))

    def _is_header(self) -> bool:
        """Whether the reader's marker is the start of a header, and a special token."""
        return "|>" in self._marker and self._marker in getattr(self._syntax, "prefaces", ())

    def _is_malformed_call(self, reader: CallReader, raw: str, *, final: bool) -> bool:
        """Whether text that could not be read is a call, whose markup is hidden, and not prose about calls."""
        if self._bare or self._quoted or reader.verbatim:
            return False
        if self._reasoning:
            return final and self._sets.special
        inner = raw.removeprefix(self._marker)
        return (
            self._sets.special or not self._in_line or self._sets.call_markup.looks_like_call(inner)
        )

    def _show_malformed_call(self, raw: str, offset: int, *, final: bool) -> None:
        """Show the text of a call that cannot be read, up to `offset`, without its markup."""
        self._malformed_call = True
        self._active = self._markers()
        pieces, in_tag = self._sets.call_markup.split(raw, final=final)
        start = offset - len(raw)
        pos = 0
        for at, piece in pieces:
            if at > pos:
                self._hide_markup(start + pos)
            self._append(piece, start + at)
            pos = at + len(piece)
        if pos < len(raw):
            self._hide_markup(start + pos)
        if in_tag is not None and not final:
            self._reader = HiddenTagReader(in_tag, _IN_TAG, self._sets.call_markup.tag_end)

    def _end_hidden(self, reader: HiddenReader, offset: int) -> None:
        start = offset - len(reader.raw)
        if reader.status == "failed":
            self._append(reader.raw, start)
        elif self._malformed_call:
            self._hide_markup(start)
        else:
            self._write_spaces(start)
            if self._sources is not None and isinstance(reader, HiddenTagReader):
                self._cite(reader.raw, self._sources)

    def _cite(self, tag: str, sources: NumberedSources) -> None:
        """Act on a tag around cited text."""
        if not tag.startswith("</"):
            self._citation = "none" if self._reasoning else "waiting"
            return
        if self._citation == "open" and (cited := sources.of(tag)):
            self._out.append(CitationEnded(cited))
        self._citation = "none"

    def _hide_markup(self, start: int) -> None:
        """Hide markup at `start` that separates two pieces of text."""
        gap = self._gap
        if gap is None and self._spaces and not self._position.fresh:
            gap = ("".join(self._spaces), start - self._spaces_length)
        self._drop_spaces()
        self._gap = gap
        self._after_markup = self._after_markup or self._position.fresh

    def _write_spaces(self, end: int) -> None:
        """Write the white space before hidden markup at `end`."""
        if self._gap is not None:
            self._write(*self._gap)
        elif self._spaces and not self._position.fresh:
            self._write("".join(self._spaces), end - self._spaces_length)
        self._drop_spaces()

    def _call_is_certain(self) -> None:
        self._drop_spaces()
        self._position.fresh = True
        if self._possible_call is not None:
            self._meter.settle(self._possible_call, reasoning=False)
            self._possible_call = None
        if self._reasoning:
            self._reasoning = False
            self._ended_by_call = True
            self.recoveries += 1

    def _drop_spaces(self) -> None:
        self._spaces.clear()
        self._spaces_length = 0
        self._gap = None

    def _append(self, text: str, start: int) -> None:
        """Append to the open block. `start` is the offset of `text`."""
        if not text:
            return
        self._position.before = text[-1]
        if self._plain:
            self._no_longer_fresh()
            self._write(text, start)
            return
        body = text.rstrip(WHITESPACE)
        if body:
            gap = self._gap
            if self._spaces:
                start -= self._spaces_length
                body = "".join(self._spaces) + body
                self._spaces.clear()
                self._spaces_length = 0
            if gap is not None:
                stripped = body.lstrip(WHITESPACE)
                start += len(body) - len(stripped)
                body = stripped
                self._gap = None
                self._write(*gap)
            elif self._position.fresh and self._after_markup:
                stripped = body.lstrip(WHITESPACE)
                space = len(body) - len(stripped)
                cut = body.rfind("\n", 0, space) + 1 or space
                body = body[cut:]
                start += cut
            self._no_longer_fresh()
            self._write(body, start)
        spaces = len(text) - len(text.rstrip(WHITESPACE))
        if spaces:
            self._spaces.append(text[-spaces:])
            self._spaces_length += spaces

    def _no_longer_fresh(self) -> None:
        if self._position.fresh:
            self._position.fresh = False
            if self._sets.fresh_starts:
                self._active = self._markers()

    def _write(self, text: str, start: int) -> None:
        delta: Delta = ReasoningDelta(text) if self._reasoning else TextDelta(text, start)
        if self._break:
            self._break = False
            if self._last is type(delta):
                self._out.append(BlockEnded())
        self._last = type(delta)
        if self._citation == "waiting":
            self._citation = "open"
            self._out.append(CitationStarted())
        self._out.append(delta)


def _refuse(name: str) -> bool:
    return False
