"""Detects what a chat template can express by rendering small conversations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, TypeVar

from msgspec import Struct

from gateway_chat_template.environment import Template
from gateway_chat_template.marked_text import OutsideText, concat
from gateway_chat_template.media_marks import mark_of, without_marks

_LIMIT = 200_000
"""Maximum length of a trial rendering, in characters; above any template's own text."""
_FIRST, _SECOND, _THIRD, _FOURTH = "qzfirst", "qzsecond", "qzthird", "qzfourth"
_ARGUMENTS = {"qzkey": "qzvalue"}
_ARGUMENTS_TEXT = '{"qzkey": "qzvalue"}'
_TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": "qztool",
        "description": "qzdescription",
        "parameters": {
            "type": "object",
            "properties": {"qzkey": {"type": "string", "description": "qz"}},
            "required": ["qzkey"],
        },
    },
}
_IMAGES: Mapping[Literal["image", "image_url"], Mapping[str, Any]] = {
    "image": {"type": "image"},
    "image_url": {"type": "image_url", "image_url": {"url": ""}},
}
_SOUNDS: Mapping[Literal["audio", "audio_url", "input_audio"], Mapping[str, Any]] = {
    "audio": {"type": "audio"},
    "audio_url": {"type": "audio_url", "audio_url": {"url": ""}},
    "input_audio": {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
}
PARTS: Mapping[str, Mapping[str, Any]] = dict([*_IMAGES.items(), *_SOUNDS.items()])
"""Content parts of images and sounds, by their type."""
_ROLES = ("user", "system", "developer", "assistant")
_LEADING = (
    ("system", "system"),
    ("system", "developer"),
    ("developer", "system"),
    ("developer", "developer"),
)
_CALL_ID = "call_qz0123456789abcd"
_SHORT_ID = "qz0123abc"

KindT = TypeVar("KindT", bound=str)
Message = dict[str, Any]


class Features(Struct, frozen=True, kw_only=True):
    """The features of one template, which determine how conversations are passed to it."""

    text: bool = True
    """Content may be a string."""
    parts: bool = False
    """Content may be a list of parts."""
    image: Literal["image", "image_url"] | None = None
    """Type of the content parts that it renders as images."""
    image_text: str = ""
    """What it writes for an image."""
    audio: Literal["audio", "audio_url", "input_audio"] | None = None
    """Type of the content parts that it renders as sounds; `audio_text` is what it writes for one."""
    audio_text: str = ""
    marks: bool = True
    """It keeps the marks of `media_marks` in the content of messages."""
    system: bool = True
    developer: bool = False
    """It supports the role `developer`."""
    late_system: bool = True
    """System messages may follow other messages; `late_developer` likewise."""
    late_developer: bool = False
    repeats: bool = True
    """Consecutive messages may have the same role."""
    leading: frozenset[tuple[str, str]] = frozenset()
    """Pairs of roles: of two leading messages of the system or a developer, it shows each."""
    several_parts: frozenset[str] = frozenset()
    """Roles whose messages may consist of several texts in a list."""
    repeats_assistant: bool = False
    """It shows each of several consecutive messages of the assistant as a message."""
    tools: bool = False
    no_tools: Literal["none", "list", "needed"] = "none"
    """What it takes where there are no tools: None, an empty list, or neither: it fails without tools."""
    described_tools: bool = False
    """Tools must have a description."""
    calls: bool = False
    """It renders earlier tool calls and their results."""
    results: bool = False
    """If it renders no calls: whether it renders the role `tool`."""
    arguments: Literal["text", "object"] = "object"
    call_content: Literal["", None] = ""
    """Content of a message that has calls and no text."""
    text_and_calls: Literal["together", "separate"] = "together"
    """Whether text and calls are in one message or in two consecutive ones. A template that supports neither gets one
    message and shows the calls."""
    reasoning_beside_calls: bool = False
    """If text and calls are separate: reasoning is shown with the calls only."""
    parallel_calls: bool = True
    short_call_ids: bool = False
    """Call ids must consist of nine letters and digits."""
    reasoning_keys: tuple[str, ...] = ()
    """Keys of an assistant message that earlier reasoning is read from."""


def find_features(template: Template, tokens: Mapping[str, str]) -> Features:
    """Detect the features of `template`. `tokens` are `bos_token` and `eos_token`."""
    trial = _Trial(template, tokens)
    no_tools = trial.find_no_tools()
    if no_tools is None:
        # It needs variables that only requests provide, so its source decides.
        return Features(
            tools=bool({"tools", "xml_tools"} & {*template.variables}),
            calls="tool_calls" in template.source,
            developer="developer" in template.source,
            repeats_assistant=True,
        )
    text = trial.shows([_user(_FIRST)], _FIRST)
    listed = trial.render([_user_parts(_FIRST)])
    parts = listed is not None and _FIRST in listed and _LISTED.search(listed) is None
    trial.as_parts = not text and parts
    developer = "developer" in template.source
    late_system = trial.late("system")
    image, image_text = trial.place(_IMAGES) if parts else (None, "")
    audio, audio_text = trial.place(_SOUNDS) if parts else (None, "")
    # A template that fails on None in place of tools reads them, whatever it shows of them.
    tools = no_tools != "none" or trial.takes_tools()
    reasoning_keys = tuple(
        key
        for key in ("reasoning_content", "reasoning", "thinking")
        if re.search(rf"\.{key}\b|['\"]{key}['\"]", template.source)
    )
    calls = _find_calls(trial, reasoning_keys)
    return Features(
        text=text or not parts,
        parts=parts,
        image=image,
        image_text=image_text,
        audio=audio,
        audio_text=audio_text,
        marks=trial.keeps_marks(),
        system=trial.shows([_system(_FIRST), _user(_SECOND)], _FIRST, _SECOND),
        developer=developer
        and trial.shows(
            [{"role": "developer", "content": _FIRST}, _user(_SECOND)], _FIRST, _SECOND
        ),
        late_system=late_system,
        late_developer=developer and trial.late("developer"),
        repeats=trial.shows([_user(_FIRST), _user(_SECOND)], _FIRST, _SECOND),
        leading=frozenset(
            pair
            for pair in _LEADING
            if (developer or "developer" not in pair) and trial.leading(*pair)
        ),
        several_parts=frozenset(role for role in _ROLES if trial.several_parts(role))
        if parts
        else frozenset(),
        repeats_assistant=trial.two_assistants([_assistant(_THIRD), _assistant(_FOURTH)], _FOURTH),
        tools=tools,
        no_tools=no_tools,
        described_tools=tools and trial.needs_descriptions(),
        reasoning_keys=reasoning_keys,
        **calls,
    )


def _find_calls(trial: _Trial, reasoning_keys: Sequence[str]) -> dict[str, Any]:
    """Find the shape of earlier calls that the template accepts: the first that works, in order of preference."""
    for call_id in (_CALL_ID, _SHORT_ID):
        for content in ("", None):
            for kind in ("text", "object"):
                arguments = _ARGUMENTS_TEXT if kind == "text" else _ARGUMENTS
                shown = trial.render(_loop(arguments, call_id, content))
                if shown is None or not _has_call(shown, whole=kind == "text"):
                    continue
                if kind == "text" and _writes_no_json(trial, call_id, content):
                    continue
                second = _call("qzother", arguments, _other(call_id))
                both = [_call("qztool", arguments, call_id), second]
                loop = _loop(arguments, call_id, content)
                text_and_calls = _text_and_calls(trial, loop)
                return {
                    "calls": True,
                    "arguments": kind,
                    "call_content": content,
                    "short_call_ids": call_id == _SHORT_ID,
                    "text_and_calls": text_and_calls,
                    "reasoning_beside_calls": text_and_calls == "separate"
                    and _reasons_beside_calls(trial, loop, reasoning_keys),
                    "parallel_calls": trial.shows(
                        [
                            _user(_FIRST),
                            {"role": "assistant", "content": content, "tool_calls": both},
                            _result("qztool", call_id),
                            _result("qzother", _other(call_id)),
                        ],
                        "qztool",
                        "qzother",
                    ),
                }
    result = _result("qztool", _CALL_ID)
    return {
        "calls": False,
        "results": trial.shows(
            [_user(_FIRST), _assistant(_THIRD), result], _FIRST, _THIRD, "qzresult"
        ),
    }


def _writes_no_json(trial: _Trial, call_id: str, content: str | None) -> bool:
    """Whether the template formats arguments itself and therefore needs them as an object."""
    shown = trial.render(_loop(_ARGUMENTS, call_id, content))
    if shown is None or not _has_call(shown, whole=False):
        return False
    return re.search(r'\{\s*"qzkey"\s*:\s*"qzvalue"\s*\}', shown) is None


def _text_and_calls(trial: _Trial, loop: Sequence[Message]) -> Literal["together", "separate"]:
    user, call, *results = loop
    words = (_THIRD, "qztool", "qzvalue", _FOURTH)
    answer = _assistant(_FOURTH)
    together = [user, {**call, "content": _THIRD}, *results, answer]
    shown = trial.render(together) or ""
    if all(word in shown for word in words):
        return "together"  # nothing is lost, in whatever order the template has it
    separate = [user, _assistant(_THIRD), call, *results, answer]
    if not trial.shows(separate, *words):
        return "together"
    # Otherwise the call would stand outside any message.
    opens = trial.two_assistants([_assistant(_THIRD), call, *results], "qztool")
    return "separate" if opens else "together"


def _reasons_beside_calls(
    trial: _Trial, loop: Sequence[Message], reasoning_keys: Sequence[str]
) -> bool:
    """Whether reasoning before a text and calls is shown with the calls, but not with the text."""
    user, call, *results = loop
    reasoning = dict.fromkeys(reasoning_keys, _SECOND)
    text = _assistant(_THIRD)
    return not trial.shows([user, {**text, **reasoning}, call, *results], _SECOND) and trial.shows(
        [user, text, {**call, **reasoning}, *results], _THIRD, _SECOND, "qztool"
    )


def _has_call(shown: str, *, whole: bool) -> bool:
    """Whether the rendered conversation contains the call and its result. `whole`: with the exact arguments."""
    if "qztool" not in shown or "qzresult" not in shown:
        return False
    if whole:
        return _ARGUMENTS_TEXT in shown
    return "qzkey" in shown and "qzvalue" in shown and "'qzkey'" not in shown


def add_xml_tools(variables: dict[str, Any], names: Collection[str]) -> None:
    """Give the tools also as `xml_tools` to a template that reads them there alone: SmolLM3's."""
    if "xml_tools" in names and "tools" not in names:
        variables.setdefault("xml_tools", variables["tools"])


class _Trial:
    def __init__(self, template: Template, tokens: Mapping[str, str]) -> None:
        self._template = template
        self._tokens = tokens
        self.as_parts = False
        """Whether content must be a list of parts."""
        self._no_tools: list[Any] | None = None
        """What it is given where there are no tools."""

    def render(self, messages: Sequence[Message], tools: list[Any] | None = None) -> str | None:
        """The rendered text; None if the template fails."""
        if self.as_parts:
            messages = [_in_parts(message) for message in messages]
        variables = {
            **self._tokens,
            "messages": messages,
            "tools": self._no_tools if tools is None else tools,
            "documents": None,
            "add_generation_prompt": True,
        }
        add_xml_tools(variables, self._template.variables)
        try:
            return self._template.render(variables, today="2026-01-01", limit=_LIMIT)
        except Exception:
            # Templates reject input by raising arbitrary exceptions.
            return None

    def find_no_tools(self) -> Literal["none", "list", "needed"] | None:
        """What the template takes where there are no tools; None if it fails in any case."""
        given: Mapping[Literal["none", "list", "needed"], list[Any] | None]
        given = {"none": None, "list": [], "needed": [_TOOL]}
        for name, tools in given.items():
            self._no_tools = tools
            if any(
                self.render([each]) is not None for each in (_user(_FIRST), _user_parts(_FIRST))
            ):
                return name
        return None

    def needs_descriptions(self) -> bool:
        """Whether the template fails on a tool without a description, but not on an empty one."""
        function = _TOOL["function"]
        bare = {key: value for key, value in function.items() if key != "description"}
        talk = [_user(_FIRST)]
        return (
            self.render(talk, [{**_TOOL, "function": bare}]) is None
            and self.render(talk, [{**_TOOL, "function": {**bare, "description": ""}}]) is not None
        )

    def leading(self, first: str, second: str) -> bool:
        """Whether two leading messages of these roles are both shown, apart."""
        talk = [{"role": first, "content": _THIRD}, {"role": second, "content": _FOURTH}]
        return (
            self.shows([*talk, _user(_FIRST)], _THIRD, _FOURTH, _FIRST)
            and self._between([*talk, _user(_FIRST)], _THIRD, _FOURTH) != ""
        )

    def _between(self, messages: Sequence[Message], first: str, second: str) -> str:
        """What is written between two words."""
        return (self.render(messages) or "").partition(first)[2].partition(second)[0]

    def two_assistants(self, messages: Sequence[Message], word: str) -> bool:
        """Whether the second of two messages of the assistant, which shows `word`, is shown as a message: what opens the assistant's
        messages stands between the two."""
        if not self.shows([_user(_FIRST), *messages], _FIRST, _THIRD, word):
            return False
        between = self._between([_user(_FIRST), *messages], _THIRD, word)
        first, second = (
            self._between([_user(_FIRST), *answer], _FIRST, shown)
            for answer, shown in ((messages[:1], _THIRD), (messages[1:], word))
        )
        answer = first[: _shared(first, second)]
        # Of what stands between a user and the assistant, another user's message shows what ends the first.
        question = self._between([_user(_FIRST), _user(_SECOND)], _FIRST, _SECOND)
        opener = _last_word(answer[_shared(answer, question) :])
        return opener in between

    def shows(self, messages: Sequence[Message], *words: str) -> bool:
        """Whether all `words` appear in this order."""
        text = self.render(messages)
        if text is None:
            return False
        at = 0
        for word in words:
            at = text.find(word, at)
            if at < 0:
                return False
        return True

    def late(self, role: str) -> bool:
        """Whether a message of `role` may follow others and keeps its place."""
        late = {"role": role, "content": _THIRD}
        first = [_user(_FIRST), {"role": "assistant", "content": _SECOND}, late]
        order = (_FIRST, _SECOND, _THIRD, _FOURTH)
        return self.shows([*first, _user(_FOURTH)], *order) and self.shows(
            [_system("qzzero"), *first, _user(_FOURTH)], *order
        )

    def several_parts(self, role: str) -> bool:
        """Whether a message of `role` may be a list of two texts, which are both shown as they are."""
        content = [{"type": "text", "text": text} for text in (_FIRST, _SECOND)]
        said = {"role": role, "content": content}
        order: tuple[str, ...]
        match role:
            case "user":
                talk, order = [said], (_FIRST, _SECOND)
            case "assistant":
                talk, order = (
                    [_user(_THIRD), said, _user(_FOURTH)],
                    (_THIRD, _FIRST, _SECOND, _FOURTH),
                )
            case _:
                talk, order = [said, _user(_THIRD)], (_FIRST, _SECOND, _THIRD)
        return self.shows(talk, *order) and _LISTED.search(self.render(talk) or "") is None

    def place(self, kinds: Mapping[KindT, Mapping[str, Any]]) -> tuple[KindT | None, str]:
        """The first of the content parts `kinds` that the template shows, and what it writes for it."""
        plain = self.render([_user_parts(_FIRST)])
        for kind, part in kinds.items():
            message = {"role": "user", "content": [part, {"type": "text", "text": _FIRST}]}
            shown = self.render([message])
            if shown is not None and shown != plain and _LISTED.search(shown) is None:
                return kind, _added(plain or "", shown)
        return None, ""

    def keeps_marks(self) -> bool:
        text = concat([OutsideText(_FIRST), mark_of(0), OutsideText(_SECOND)])
        content: Any = [{"type": "text", "text": text}] if self.as_parts else text
        shown = self.render([{"role": "user", "content": content}])
        if shown is None:
            return False
        before, *after = without_marks(shown)
        return bool(after) and _FIRST in before.text and _SECOND in after[-1].text

    def takes_tools(self) -> bool:
        conversations = ([_user(_FIRST)], [_system(_SECOND), _user(_FIRST)])
        shown = "".join(self.render(talk, [_TOOL]) or "" for talk in conversations)
        return any(word in shown for word in ("qztool", "qzdescription", "qzkey"))


MARKER = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|\]<\][^<>\[\]\s]+\[>\[")
"""What looks like a control token, in the notations of the known families."""
_PIECE = re.compile(rf"{MARKER.pattern}|\w+|\s+|.", re.DOTALL)
_MOST_PIECES: Final = 2000
"""Number of pieces up to which texts are compared, which takes the square of the time."""
_LISTED = re.compile(
    r"""(['"])type\1:\s*(['"])(?:text|image|audio|image_url|audio_url|input_audio)\2"""
)
"""A part that a template prints as it is, instead of its text."""


def _added(plain: str, longer: str) -> str:
    """What `longer` has in addition to `plain`. Compared by control tokens and words, so that tokens that begin or end alike are told
    apart."""
    before, after = (_PIECE.findall(text) for text in (plain, longer))
    start = _shared(before, after)
    end = min(_shared(before[::-1], after[::-1]), len(before) - start, len(after) - start)
    before, after = before[start : len(before) - end], after[start : len(after) - end]
    if len(before) > _MOST_PIECES or len(after) > _MOST_PIECES:
        return ""
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return "".join("".join(after[i:j]) for kind, _, _, i, j in blocks if kind != "equal")


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of what both begin with."""
    at = 0
    while at < min(len(one), len(other)) and one[at] == other[at]:
        at += 1
    return at


def _last_word(text: str) -> str:
    """The last stretch of a template's text that is not white space: what opens the content that follows."""
    words = text.split()
    return words[-1] if words else ""


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _user_parts(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _in_parts(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, str) or not content:
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def _call(name: str, arguments: Any, call_id: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _result(name: str, call_id: str) -> Message:
    return {"role": "tool", "content": "qzresult", "tool_call_id": call_id, "name": name}


def _loop(arguments: Any, call_id: str, content: str | None) -> list[Message]:
    calls = [_call("qztool", arguments, call_id)]
    return [
        _user(_FIRST),
        {"role": "assistant", "content": content, "tool_calls": calls},
        _result("qztool", call_id),
    ]


def _other(call_id: str) -> str:
    return call_id[:-1] + "z"
