"""The machine: one pass over a model's output, for reasoning, text and calls together."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.deltas import BlockEnded, CallEnded, Delta, ReasoningDelta, TextDelta
from gateway.protocols.engine import EngineOutput, FinishReason
from gateway.protocols.output import ParserContext
from gateway_parsers.kit.live import LiveMarkers, State
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerSet, Position
from gateway_parsers.kit.meter import ReasoningMeter, Span
from gateway_parsers.kit.syntax import Accept, CallReader
from gateway_parsers.spec import FormatSpec


class Machine:
    """Reads one generation; an `OutputParser`.

    Whitespace next to markup belongs to the markup: what stands before a marker is dropped with it, and so is what
    follows one, but for the indentation of the first line of text. Hence whitespace is held until it is clear what it
    stands before. All else is given out as it comes.
    """

    def __init__(self, spec: FormatSpec, sets: LiveMarkers, context: ParserContext) -> None:
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
        """The end of what was fed, which cannot be judged yet; never longer than a marker or a name."""
        self._spaces: list[str] = []
        """Whitespace that came last, held until it is clear what it stands before."""
        self._spaces_length = 0
        self._fed = 0
        """Characters fed so far; `_feed_start` is where the newest begin."""
        self._feed_start = 0
        self._position = Position()
        self._after_markup = self._reasoning
        """The open block came after markup, so its leading whitespace is dropped."""
        self._break = False
        """The block that comes next is a new one, even if of the same kind as the last."""
        self._last: type[Delta] | None = None
        self._reader: CallReader | None = None
        self._bare = False
        """What the reader reads began like ordinary text."""
        self._trial: Span | None = None
        """The stretch of reasoning that may turn out to be a call."""
        self._ended_by_call = False
        """Reasoning was never closed, a call ended it: its close marker may still come."""
        self._unclosed_call = False
        """A call's end marker is missing, and may still come."""
        self._framed = False
        """Text stands in markup of its own, whose end is not shown."""
        self._live = self._markers()
        self._plain = not self._live.longest
        self._flowing = False
        """Nothing is held, pending or open but the block: what no marker can begin in goes straight on."""

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        text = output.text
        # The path of nearly every token: kept to what it cannot do without.
        if (
            self._flowing
            and text
            and text[-1] not in WHITESPACE
            and (
                self._live.only_first not in text
                if self._live.only_first
                else self._untouched(text)
            )
        ):
            start = self._fed
            self._fed = start + len(text)
            self._position.before = text[-1]
            if not self._reasoning:
                return (TextDelta(text, start),)
            self.reasoning_tokens = self._meter.total = self._meter.total + len(output.token_ids)
            return (ReasoningDelta(text),)
        if text:
            self._feed_start = self._fed
            self._fed += len(text)
            self._advance(self._held + text if self._held else text, final=False)
        if output.token_ids:
            self._meter.count(text, output.token_ids)
            self.reasoning_tokens = self._meter.total
        self._flowing = (
            self._reader is None
            and not self._position.fresh
            and not self._held
            and not self._spaces
            and self._meter.settled
        )
        return self._taken()

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        self._feed_start = self._fed
        if self._held or self._reader is not None:
            self._advance(self._held, final=True)
        reader = self._reader
        if reader is not None:
            reader.finish(stopped=reason == "stop")
            if reason == "length" and reader.status == "failed" and not self._bare:
                self._forget(reader)
            else:
                self._drain(reader, self._fed - len(self._held))
        self._say(self._held, self._fed - len(self._held))
        if self._spaces and not (self._position.fresh and (self._after_markup or self._last)):
            self._write("".join(self._spaces), self._fed - self._spaces_length)
        self.reasoning_tokens = self._meter.total
        return self._taken()

    def _taken(self) -> Sequence[Delta]:
        if not self._out:
            return ()
        out, self._out = self._out, []
        return out

    def _untouched(self, text: str) -> bool:
        """Whether no live marker can begin in `text`."""
        for first in self._live.firsts:  # noqa: SIM110  # all() with a generator costs more than the rest of the token
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
        )
        return self._sets.of(state)

    def _advance(self, text: str, *, final: bool) -> None:
        """Read `text`: what was held, and what is new."""
        pos = 0
        base = self._fed - len(text)
        while True:
            reader = self._reader
            if reader is not None:
                start = pos
                pos = reader.read(text, pos, final=final)
                if pos > start:
                    self._position.before = text[pos - 1]
                self._drain(reader, base + pos)
                if self._reader is not None:
                    break
                continue
            hit = self._live.find(text, pos, self._position, final=final)
            if hit is None:
                end = len(text)
                if not final:
                    end -= self._live.held(text, pos, self._position)
                self._say(text[pos:end], base + pos)
                pos = end
                break
            start, marker = hit
            self._say(text[pos:start], base + pos)
            quoted_from = self._position.before
            pos = start + len(marker.text)
            self._position.before = marker.text[-1]
            self._act(marker, base + pos, quoted_from)
        self._held = text[pos:]

    def _act(self, marker: Marker, offset: int, before: str) -> None:
        """A marker has been read; `offset` is where it ends."""
        if marker.action == "call":
            self._begin_call(marker.text, offset, before)
            return
        if marker.action == "hide":
            if self._spaces and not self._position.fresh:
                end = offset - len(marker.text)
                self._write("".join(self._spaces), end - self._spaces_length)
            self._drop_spaces()
            return
        if marker.action == "turn_end":
            self._drop_spaces()
            return
        if marker.action == "open":
            self._reasoning = True
            self._meter.border(offset - self._feed_start, True)
            self._break = self._last is ReasoningDelta
        elif marker.action == "close":
            self._reasoning = False
            self._meter.border(offset - self._feed_start, False)
        elif marker.action == "frame":
            self._break = self._break or not self._position.fresh
            self._framed = marker.text in self._spec.frame_opens
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
        self._live = self._markers()

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
            self._trial = self._meter.border(offset - self._feed_start, None)
        if marker in self._syntax.bare and self._tools:
            accept = self._offered_or_shown if self._position.fresh else self._tools.__contains__
        self._bare = marker in self._syntax.bare
        self._reader = self._syntax.reader(marker, accept, self._tools)

    def _offered_or_shown(self, name: str) -> bool | None:
        return name in self._tools or None

    def _drain(self, reader: CallReader, offset: int) -> None:
        """Take what `reader` has read up to `offset`, and leave it where it is at its end."""
        if reader.out:
            self._call_is_certain()
            self._out += reader.out
            self._last = type(reader.out[-1])
            reader.out.clear()
        if reader.status == "more":
            return
        self._reader = None
        self._unclosed_call = reader.unclosed
        if reader.status == "done":
            self.recoveries += reader.recoveries
            self._call_is_certain()
            self._new_block()
            return
        if not self._bare or reader.unclosed:
            self.recoveries += reader.recoveries + 1
        raw = reader.raw
        if self._trial is not None:
            self._meter.settle(self._trial, reasoning=True)
            self._trial = None
        elif self._last is CallEnded:
            self._new_block()
        self._live = self._markers()
        self._say(raw, offset - len(raw))

    def _forget(self, reader: CallReader) -> None:
        """A limit came before the name of a call that had begun: there is nothing to call, and its markup is no text."""
        self._reader = None
        self.recoveries += reader.recoveries + 1
        self._held = ""
        self._drop_spaces()
        if self._trial is not None:
            self._meter.settle(self._trial, reasoning=True)
            self._trial = None

    def _call_is_certain(self) -> None:
        self._drop_spaces()
        self._position.fresh = True
        if self._trial is not None:
            self._meter.settle(self._trial, reasoning=False)
            self._trial = None
        if self._reasoning:
            self._reasoning = False
            self._ended_by_call = True
            self.recoveries += 1

    def _drop_spaces(self) -> None:
        self._spaces.clear()
        self._spaces_length = 0

    def _say(self, text: str, start: int) -> None:
        """More of the open block; `start` is its offset."""
        if not text:
            return
        self._position.before = text[-1]
        if self._plain:
            self._position.fresh = False
            self._write(text, start)
            return
        body = text.rstrip(WHITESPACE)
        if body:
            if self._spaces:
                start -= self._spaces_length
                body = "".join(self._spaces) + body
                self._drop_spaces()
            if self._position.fresh and self._after_markup:
                said = body.lstrip(WHITESPACE)
                space = len(body) - len(said)
                cut = body.rfind("\n", 0, space) + 1 or space
                body = body[cut:]
                start += cut
            self._position.fresh = False
            self._write(body, start)
        spaces = len(text) - len(text.rstrip(WHITESPACE))
        if spaces:
            self._spaces.append(text[-spaces:])
            self._spaces_length += spaces

    def _write(self, text: str, start: int) -> None:
        delta: Delta = ReasoningDelta(text) if self._reasoning else TextDelta(text, start)
        if self._break:
            self._break = False
            if self._last is type(delta):
                self._out.append(BlockEnded())
        self._last = type(delta)
        self._out.append(delta)


def _refuse(name: str) -> bool:
    return False
