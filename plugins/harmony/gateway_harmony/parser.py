"""The parser: reads an output in one pass, message by message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from gateway.sdk import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    EngineOutput,
    FinishReason,
    MessageStarted,
    ParserContext,
    ReasoningDelta,
    TextDelta,
)
from gateway.sdk.wire import Phase
from gateway_harmony import header as headers
from gateway_harmony.calls import PYTHON, is_address, tool_name
from gateway_harmony.header import Header
from gateway_harmony.markers import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    LONGEST,
    MESSAGE,
    PATTERN,
    RETURN,
    START,
    possible_marker_length,
)
from gateway_harmony.tokens import TokenLookup, TokenTrack
from gateway_parsers.kit.free_text import is_custom
from gateway_parsers.kit.json_value import StringStop
from gateway_parsers.kit.written_arguments import WrittenArguments

_WORD: Final = re.compile(r"\s*[A-Za-z]*")
_PHASES: Final[Mapping[str, Phase]] = {"commentary": "commentary", "final": "final_answer"}
_OVERLONG: Final = headers.LIMIT + LONGEST


# Not enumerations: looking up a member costs several times as much as a string, and each token does.
_At: TypeAlias = Literal["header", "content", "type", "between"]
"""State of the machine. `type` is the word after a `<|constrain|>` inside content; `between` is after a message."""
_Kind: TypeAlias = Literal["reasoning", "text", "call"]
"""The kind of item that the open message becomes."""


class HarmonyParser:
    """Parses one generation; an `OutputParser`.

    Content is emitted verbatim as it arrives. Headers are held until they end; a malformed one ends after at most
    `header.LIMIT` characters.
    """

    def __init__(self, context: ParserContext, vocabulary: TokenLookup | None = None) -> None:
        self.reasoning_tokens = 0
        self.recoveries = 0
        self._tools = context.tools
        self._parse_tools = context.parse_tools
        self._track = TokenTrack(vocabulary)
        self._out: list[Delta] = []
        self._held = ""
        """Trailing text that cannot be classified yet."""
        self._fed = 0
        """Number of characters fed so far."""
        self._at: _At = "header"
        self._first = True
        """Whether this is the first header, whose `<|start|>assistant` is in the prompt."""
        self._kind: _Kind = "text"
        self._phase: Phase | None = None
        self._opened = False
        """Whether the open message has been announced."""
        self._lead: list[str] | None = None
        """White space of an answer with a recipient, which is a call only if it contains an object; else None."""
        self._name = ""
        self._empty = True
        """Whether the open call has no arguments yet."""
        self._arguments: WrittenArguments | None = None
        """Mends the arguments of the open call; None: they are no JSON, but a program."""
        self._stop_in_string: StringStop | None = None
        """Finds what is not plain text in the open string of the arguments; None outside of strings."""
        if context.tail != "unknown":
            self._at = "content"
            self._first = False
            self._phase = "final_answer"
            if context.tail == "reasoning":
                self._kind = "reasoning"
                self._track.mark_reasoning(0, reasoning=True)

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        text = output.text
        start = self._fed
        if output.token_ids:
            self._track.push(output.token_ids, start, text)
        if text:
            self._fed = start + len(text)
            if self._opened and self._at == "content" and not self._held and "<" not in text:
                delta = self._delta(text, start)
                if output.token_ids:
                    self._track.settle(self._fed)
                    self.reasoning_tokens = self._track.reasoning
                return (delta,) if delta is not None else ()
            self._advance(self._held + text, final=False)
        return self._take_deltas()

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        ended = reason == "stop"
        self._advance(self._held, final=True, ended=ended)
        arguments = self._arguments
        in_call = self._at == "content" and self._kind == "call" and self._opened
        if in_call and (ended or (arguments is not None and arguments.done)):
            self._close(self._fed, whole=False)
        deltas = self._take_deltas()
        self._track.finish()
        self.reasoning_tokens = self._track.reasoning
        return deltas

    def _take_deltas(self) -> Sequence[Delta]:
        self._track.settle(self._fed - len(self._held))
        self.reasoning_tokens = self._track.reasoning
        if not self._out:
            return ()
        out, self._out = self._out, []
        return out

    def _advance(self, text: str, *, final: bool, ended: bool = False) -> None:
        """Process `text`: held text and new text. `ended`: the model itself ended the output here."""
        pos: int = 0
        reached: int | None = 0
        while reached is not None:
            pos = reached
            match self._at:
                case "header":
                    reached = self._header(text, pos, final, ended)
                case "content":
                    reached = self._content(text, pos)
                    if reached is None:
                        end = len(text) if final else len(text) - possible_marker_length(text, pos)
                        self._write(text, pos, end)
                        pos = end
                case "type":
                    word = _WORD.match(text, pos)
                    assert word is not None, "the pattern matches the empty text"
                    if word.end() < len(text) or final:
                        self._at = "content"
                        reached = word.end()
                    else:
                        reached = None
                case "between":
                    reached = self._between(text, pos, final)
                    if reached is None and final:
                        pos = len(text)
        self._held = text[pos:]

    # Each of these methods reads one element at `pos`. It returns the end of the element, or None if more text is
    # needed.

    def _content(self, text: str, pos: int) -> int | None:
        found = self._marker(text, pos)
        if found is None:
            return None
        marker, start, end = found
        self._write(text, pos, start)
        offset = self._offset(text, start)
        match marker:
            case "<|end|>" | "<|return|>" | "<|call|>":
                self._close(offset)
            case "<|start|>":
                self.recoveries += 1
                self._close(offset)
                self._at = "header"
            case "<|channel|>":
                self.recoveries += 1
                self._close(offset)
                self._at = "header"
                return start
            case _:
                self.recoveries += 1
                empty = self._kind == "call" and self._empty
                if marker == CONSTRAIN and empty:
                    self._at = "type"
        return end

    def _header(self, text: str, pos: int, final: bool, ended: bool) -> int | None:
        found = self._marker(text, pos)
        limit = pos + headers.LIMIT
        if self._first:
            # What follows a header's maximum length decides nothing, because it may not have arrived yet.
            whole = found is not None and found[1] <= limit
            bare = text[pos : found[1] if found is not None and whole else limit]
            if not headers.may_begin(bare, whole=whole):
                self.recoveries += 1
                self._begin(Header(None, None, well_formed=False), self._offset(text, pos))
                return pos
        while found is not None and found[0] in (CHANNEL, CONSTRAIN) and found[1] <= limit:
            found = self._marker(text, found[2])
        if found is None and len(text) - pos < _OVERLONG:
            return self._cut_header(text, pos, ended=ended) if final else None
        if found is None or found[1] > limit:
            return self._read_incomplete_header(text, pos, limit, None)
        marker, start, end = found
        if marker == MESSAGE:
            header = headers.read_whole(text[pos:start])
            self.recoveries += not header.well_formed
            self._begin(header, self._offset(text, end))
            return end
        if marker == START and not text[pos:start].strip():
            self.recoveries += not self._first
            self._first = False
            return end
        return self._read_incomplete_header(text, pos, start, marker)

    def _read_incomplete_header(self, text: str, pos: int, end: int, marker: str | None) -> int:
        """Interpret a header without `<|message|>`. It ends at `end`, where `marker` stands or the limit is reached."""
        self.recoveries += 1
        header, content = headers.read_beginning(text, pos, end)
        offset = self._offset(text, content)
        nothing = marker is not None and not text[content:end].strip()
        if (
            marker == END
            and header.channel != "final"
            and headers.has_no_content(text[content:end])
        ):
            self._end_message()
            return end
        if nothing and (header.recipient is None or marker == START):
            self._end_message()
            return end
        self._begin(header, offset)
        return content

    def _cut_header(self, text: str, pos: int, *, ended: bool) -> int:
        """Handle an output that ends within a header."""
        header, content = headers.read_beginning(text, pos, len(text))
        if not headers.is_cut_short(text[content:]):
            self.recoveries += 1
            self._begin(header, self._offset(text, content))
            return content
        if ended and header.recipient is not None and not text[content:].strip():
            self.recoveries += 1
            self._begin(header, self._offset(text, content))
        else:
            self._end_message()
        return len(text)

    def _between(self, text: str, pos: int, final: bool) -> int | None:
        while pos < len(text) and text[pos].isspace():
            pos += 1
        found = self._marker(text, pos)
        if found is None and len(text) - pos < _OVERLONG:
            if not final or headers.is_cut_short(text[pos:]):
                return None
            found = (START, len(text), len(text))
        elif found is None or found[1] > pos + headers.LIMIT:
            self.recoveries += 1
            self._begin(Header(None, None, well_formed=False), self._offset(text, pos))
            return pos
        marker, start, end = found
        if marker in (CHANNEL, CONSTRAIN, MESSAGE) and headers.is_headless(text[pos:start]):
            self.recoveries += 1
            self._at = "header"
            return pos
        self._read_between_messages(text, pos, start)
        if marker == START:
            self._at = "header"
            return end
        self.recoveries += 1
        if marker in (END, RETURN, CALL):
            return end
        self._at = "header"
        return start

    def _read_between_messages(self, text: str, pos: int, end: int) -> None:
        """Handle text between two messages."""
        if pos == end:
            return
        self.recoveries += 1
        if not headers.is_leftover(text[pos:end]):
            self._begin(Header(None, None, well_formed=False), self._offset(text, pos))
            self._write(text, pos, end)
            self._close(self._offset(text, end))

    def _marker(self, text: str, pos: int) -> tuple[str, int, int] | None:
        """The next real marker from `pos` on, with its start and end.

        Inside content, a marker that the model spelled out in ordinary tokens is a quotation. Outside content every
        marker is real, because an engine that enforces text may spell it so.
        """
        while (found := PATTERN.search(text, pos)) is not None:
            confirmed = self._track.is_special(found[0], self._offset(text, found.start()))
            if confirmed or self._at != "content":
                return found[0], found.start(), found.end()
            pos = found.end()
        return None

    def _offset(self, text: str, pos: int) -> int:
        return self._fed - len(text) + pos

    # Messages.

    def _begin(self, header: Header, offset: int) -> None:
        """Start a message whose content starts at `offset`."""
        self._first = False
        self._at = "content"
        self._opened = False
        self._phase = _PHASES.get(header.channel or "")
        self._kind = "reasoning" if header.channel == "analysis" else "text"
        if header.recipient is not None:
            name = tool_name(header.recipient, self._tools)
            unknown = bool(self._tools) and name not in self._tools
            thinking = header.channel == "analysis" and unknown and not is_address(header.recipient)
            if self._parse_tools and not thinking:
                self._kind = "call"
                self._name = name
                if header.channel == "final":
                    self._lead = []
                else:
                    self._start_call()
            else:
                self.recoveries += 1
        if header.channel is not None and header.channel not in headers.CHANNELS:
            self.recoveries += header.well_formed
        if self._kind == "reasoning":
            self._track.mark_reasoning(offset, reasoning=True)

    def _start_call(self) -> None:
        custom = is_custom(self._tools.get(self._name))
        self._opened = True
        self._empty = True
        program = self._name == PYTHON and not custom
        self._arguments = None if program else WrittenArguments(custom=custom)
        self._out.append(CallStarted(self._name))

    def _write(self, text: str, start: int, end: int) -> None:
        """Append to the open message."""
        if start == end:
            return
        if self._lead is not None:
            said = text[start:end].lstrip()
            if not said:
                self._lead.append(text[start:end])
                return
            lead, self._lead = "".join(self._lead), None
            if said.startswith("{"):
                self._start_call()
            else:
                self.recoveries += 1
                self._kind = "text"
                if lead:
                    self._open_message()
                    self._out.append(TextDelta(lead))
        self._open_message()
        delta = self._delta(text[start:end], self._offset(text, start))
        if delta is not None:
            self._out.append(delta)

    def _open_message(self) -> None:
        """Announce the open message, if it has not been."""
        if not self._opened:
            self._opened = True
            if self._kind == "text" and self._phase is not None:
                self._out.append(MessageStarted(self._phase))

    def _delta(self, text: str, offset: int) -> Delta | None:
        if self._kind == "text":
            return TextDelta(text, offset)
        if self._kind == "reasoning":
            return ReasoningDelta(text)
        stop = self._stop_in_string
        if stop is not None and stop(text) is None:
            return CallArgumentsDelta(text)  # as nearly always
        self._empty = False
        arguments = self._arguments
        if arguments is None:
            return CallArgumentsDelta(text)
        written = arguments.feed(text)
        self._stop_in_string = arguments.stop_in_string
        return CallArgumentsDelta(written) if written else None

    def _end_call(self, *, whole: bool) -> None:
        """End the open call. `whole`: a marker ends it."""
        arguments, self._arguments = self._arguments, None
        self._stop_in_string = None
        if arguments is None:
            self._out.append(CallEnded())
            return
        rest = arguments.end(whole=whole)
        self.recoveries += bool(arguments.repairs)
        if rest is None:
            return
        if rest:
            self._out.append(CallArgumentsDelta(rest))
        self._out.append(CallEnded())
        if arguments.spare:
            self.recoveries += 1
            self._out += (TextDelta(arguments.spare), BlockEnded())

    def _close(self, offset: int, *, whole: bool = True) -> None:
        """End the open message at `offset`. `whole`: a marker ends it."""
        self._lead = None
        match self._kind:
            case "call":
                if self._opened:
                    self._end_call(whole=whole)
            case "reasoning":
                self._track.mark_reasoning(offset, reasoning=False)
                if self._opened:
                    self._out.append(BlockEnded())
            case "text":
                if self._opened:
                    self._out.append(BlockEnded())
        self._end_message()

    def _end_message(self) -> None:
        self._at = "between"
        self._first = False
        self._opened = False
        self._arguments = None
        self._stop_in_string = None
