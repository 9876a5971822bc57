"""Reads a call's arguments whose limits are known, piece by piece, and returns them as the JSON text of an object."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from gateway_parsers.kit.coercion import quoted
from gateway_parsers.kit.encoded import EncodedArguments
from gateway_parsers.kit.free_text import custom_arguments
from gateway_parsers.kit.json_value import JsonValue, StringStop
from gateway_parsers.kit.markers import WHITESPACE, MarkerSet
from gateway_parsers.kit.reader import skip
from gateway_parsers.kit.syntax import MAX_NAME

_NO_STOPS: Final = MarkerSet(())
_FENCE: Final = re.compile(r"```[\w-]{0,16}[ \t]*(?=[\n{\"])")
_FENCE_BEFORE: Final = re.compile(r"\s*(?:```[\w-]{0,16}\s*)?\Z")
_OBJECT: Final = re.compile(r"\{(?=[ \t\r\n]*[\"'])")
_INPUT: Final = re.compile(r"\s{0,64}\{\s{0,64}\"input\"\s{0,64}:\s{0,64}\"")
_MAX_INPUT: Final = 4 * 64 + len('{"input":"')
"""Characters that its match may have."""
_NOTHING: Final = ("", "null", "None", "[]")
_BRACKETS: Final = "[(" + WHITESPACE
_MAX_LEAD: Final = 2 * MAX_NAME
"""Characters in which an object must begin."""
_State: TypeAlias = Literal["start", "object", "encoded", "after", "raw", "held", "input"]


class WrittenArguments:
    """Arguments of one call, in which the model has written JSON, more or less.

    Broken JSON is mended as everywhere. Text before or after an object is `spare`. What contains no object is passed on
    as it is, unless it is empty or null. A `custom` tool's text becomes its input.
    """

    __slots__ = (
        "_all",
        "_encoded",
        "_fenced",
        "_is_known",
        "_state",
        "_text",
        "_value",
        "repairs",
        "spare",
    )

    def __init__(self, *, custom: bool) -> None:
        self.spare = ""
        """Text around the object."""
        self.repairs = 0
        self._fenced = False
        self._state: _State = "input" if custom else "start"
        self._text = ""
        """Text that is not read yet."""
        self._all: list[str] = []
        """Text that may have to be passed on as it is."""
        self._is_known = False
        """Whether it is known that no object with the input begins a custom tool's text."""
        self._value = JsonValue(_NO_STOPS)
        self._encoded = EncodedArguments('"')

    @property
    def done(self) -> bool:
        """Whether the object is complete."""
        return self._state == "after"

    @property
    def stop_in_string(self) -> StringStop | None:
        """If it finds nothing in the text that follows, that text is all that `feed` would return. It holds until then.
        None: nothing is known of what follows."""
        if self._state != "object" or self._text:
            return None
        return self._value.stop_in_string

    def feed(self, text: str) -> str:
        """What `text` adds to the arguments; may be empty."""
        match self._state:
            case "raw":
                return text
            case "held":
                return self._held(text)
            case "input":
                return self._input(text)
            case "start":
                self._text += text
                return self._start()
            case "object":
                return self._object(self._text + text, final=False)
            case "encoded":
                self._all.append(text)
                return self._inside_string(self._text + text, final=False)
            case "after":
                self._all.append(text)
                return ""

    def end(self, *, whole: bool) -> str | None:
        """The end of the arguments; None if they are cut off. `whole`: a marker, and not the output's end, ends them."""
        match self._state:
            case "raw":
                return ""
            case "held":
                return custom_arguments("".join(self._all))
            case "input":
                return '"}' if self._all else custom_arguments(self._text) if self._text else "{}"
            case "start":
                text = self._text
                self._text = ""
                self.repairs += bool(text.strip())
                return "{}" if text.strip() in _NOTHING else text
            case "object":
                found = self._object(self._text, final=True)
                if self.done:
                    return found + (self.end(whole=whole) or "")
                self.repairs += 1
                if not whole and not self._value.may_close:
                    return None
                return found + self._value.ending()
            case "encoded":
                found = self._inside_string(self._text, final=True)
                if self._encoded.done or self._encoded.failed:
                    return found
                if not whole:
                    return None
                self.spare = self._encoded.spare
                return found + self._encoded.ending() if self._encoded.is_object else "{}"
            case "after":
                rest = _without_leftovers("".join(self._all))
                self.spare += "\n" * bool(self.spare and rest) + rest
                return ""

    def _input(self, text: str) -> str:
        """More of a custom tool's text, which may be in a JSON string or an object."""
        if self._all:
            return quoted(text)[1:-1]
        self._text += text
        first = self._text[:MAX_NAME].lstrip()[:1]
        if not first and len(self._text) < MAX_NAME:
            return ""
        written, self._text = self._text, ""
        if first and first in '{"':
            self._state = "held"
            return self._held(written)
        self._all = [""]
        return '{"input": ' + quoted(written)[:-1]

    def _held(self, text: str) -> str:
        """More of a custom tool's text that may be JSON. Its object with the input is passed on as it arrives."""
        self._all.append(text)
        if self._is_known:
            return ""
        written = "".join(self._all)
        if _INPUT.match(written):
            self._state = "object"
            return self._object(written.lstrip(), final=False)
        self._is_known = len(written) > _MAX_INPUT
        return ""

    def _start(self) -> str:
        text = self._text
        self._text = text = text[skip(text, 0, WHITESPACE) :]
        if not text:
            return ""
        if text[0] == "{":
            self._state = "object"
            return self._object(text, final=False)
        if text[0] == '"':
            self._state = "encoded"
            self._all = [text]
            self._encoded = EncodedArguments('"')
            return self._inside_string(text[1:], final=False)
        fence = _FENCE.match(text, 0, _MAX_LEAD) if not self._fenced else None
        if fence is not None:
            self.repairs += 1
            self._fenced = True
            self._text = text[fence.end() :]
            return self._start()
        found = _OBJECT.search(text, 0, _MAX_LEAD)
        if found is not None and found.start() <= MAX_NAME:
            self.repairs += 1
            self.spare = _FENCE_BEFORE.sub("", text[: found.start()]).rstrip(_BRACKETS)
            self._state = "object"
            return self._object(text[found.start() :], final=False)
        if len(text) > _MAX_LEAD:
            self._state = "raw"
            return text
        return ""

    def _object(self, text: str, *, final: bool) -> str:
        value = self._value
        end, piece = value.read(text, 0, final=final)
        self._text = text[end:]
        if value.done:
            self.repairs += value.repairs
            self._state = "after"
            self._all = [self._text]
            self._text = ""
        return piece

    def _inside_string(self, text: str, *, final: bool) -> str:
        """Read an object that is in a JSON string."""
        encoded = self._encoded
        end, piece = encoded.read(text, 0, final=final)
        self._text = text[end:]
        if encoded.failed or (
            encoded.done and not encoded.is_object and "".join(self._all).strip() != '""'
        ):
            self._state = "raw"
            return "".join(self._all)
        if encoded.done:
            self.repairs += 1
            self.spare = encoded.spare
            self._state = "after"
            self._all = [self._text]
            self._text = ""
            return piece if encoded.is_object else "{}"
        return piece


def _without_leftovers(text: str) -> str:
    """Text after an object, without superfluous brackets and the end of a code block."""
    return text.lstrip(WHITESPACE + "}])`").rstrip(WHITESPACE)
