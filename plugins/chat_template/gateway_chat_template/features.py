"""Detects what a chat template can express by rendering small conversations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from gateway_chat_template.environment import Template
from gateway_chat_template.marked_text import OutsideText, concat
from gateway_chat_template.media_marks import mark_of, without_marks

_LIMIT = 200_000
"""Maximum length of a trial rendering, in characters; above any template's own text."""
_FIRST, _SECOND, _THIRD, _FOURTH = "qzfirst", "qzsecond", "qzthird", "qzfourth"
_ARGUMENTS = {"qzkey": "qzvalue"}
_ARGUMENTS_TEXT = '{"qzkey": "qzvalue"}'
_TOOL = {
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
    tools: bool = False
    calls: bool = False
    """It renders earlier tool calls and their results."""
    arguments: Literal["text", "object"] = "object"
    call_content: Literal["", None] = ""
    """Content of a message that has calls and no text."""
    text_and_calls: Literal["together", "separate"] = "together"
    """Whether text and calls are in one message or in two consecutive ones. A template that supports neither gets one
    message and shows the calls."""
    parallel_calls: bool = True
    short_call_ids: bool = False
    """Call ids must consist of nine letters and digits."""
    reasoning_keys: tuple[str, ...] = ()
    """Keys of an assistant message that earlier reasoning is read from."""


def find_features(template: Template, tokens: Mapping[str, str]) -> Features:
    """Detect the features of `template`. `tokens` are `bos_token` and `eos_token`."""
    trial = _Trial(template, tokens)
    if trial.render([_user(_FIRST)]) is None and trial.render([_user_parts(_FIRST)]) is None:
        # It needs variables that only requests provide, so its source decides.
        return Features(
            tools="tools" in template.variables,
            calls="tool_calls" in template.source,
            developer="developer" in template.source,
        )
    text = trial.shows([_user(_FIRST)], _FIRST)
    listed = trial.render([_user_parts(_FIRST)])
    parts = listed is not None and _FIRST in listed and "'text'" not in listed
    trial.as_parts = not text and parts
    developer = "developer" in template.source
    late_system = trial.late("system")
    calls = _find_calls(trial)
    image, image_text = trial.place(_IMAGES) if parts else (None, "")
    audio, audio_text = trial.place(_SOUNDS) if parts else (None, "")
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
        tools=trial.takes_tools(),
        reasoning_keys=tuple(
            key
            for key in ("reasoning_content", "reasoning", "thinking")
            if re.search(rf"\.{key}\b|['\"]{key}['\"]", template.source)
        ),
        **calls,
    )


def _find_calls(trial: _Trial) -> dict[str, Any]:
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
                return {
                    "calls": True,
                    "arguments": kind,
                    "call_content": content,
                    "short_call_ids": call_id == _SHORT_ID,
                    "text_and_calls": _text_and_calls(trial, _loop(arguments, call_id, content)),
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
    return {"calls": False}


def _writes_no_json(trial: _Trial, call_id: str, content: str | None) -> bool:
    """Whether the template formats arguments itself and therefore needs them as an object."""
    shown = trial.render(_loop(_ARGUMENTS, call_id, content))
    if shown is None or not _has_call(shown, whole=False):
        return False
    return re.search(r'\{\s*"qzkey"\s*:\s*"qzvalue"\s*\}', shown) is None


def _text_and_calls(trial: _Trial, loop: Sequence[Message]) -> Literal["together", "separate"]:
    user, call, *results = loop
    words = (_THIRD, "qztool", "qzvalue", _FOURTH)
    answer = {"role": "assistant", "content": _FOURTH}
    if trial.shows([user, {**call, "content": _THIRD}, *results, answer], *words):
        return "together"
    assistant_text = {"role": "assistant", "content": _THIRD}
    if trial.shows([user, assistant_text, call, *results, answer], *words):
        return "separate"
    return "together"


def _has_call(shown: str, *, whole: bool) -> bool:
    """Whether the rendered conversation contains the call and its result. `whole`: with the exact arguments."""
    if "qztool" not in shown or "qzresult" not in shown:
        return False
    if whole:
        return _ARGUMENTS_TEXT in shown
    return "qzkey" in shown and "qzvalue" in shown and "'qzkey'" not in shown


class _Trial:
    def __init__(self, template: Template, tokens: Mapping[str, str]) -> None:
        self._template = template
        self._tokens = tokens
        self.as_parts = False
        """Whether content must be a list of parts."""

    def render(self, messages: Sequence[Message], tools: list[Any] | None = None) -> str | None:
        """The rendered text; None if the template fails."""
        if self.as_parts:
            messages = [_in_parts(message) for message in messages]
        variables = {
            **self._tokens,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return self._template.render(variables, today="2026-01-01", limit=_LIMIT)
        except Exception:
            # Templates reject input by raising arbitrary exceptions.
            return None

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

    def place(self, kinds: Mapping[KindT, Mapping[str, Any]]) -> tuple[KindT | None, str]:
        """The first of the content parts `kinds` that the template shows, and what it writes for it."""
        plain = self.render([_user_parts(_FIRST)])
        for kind, part in kinds.items():
            message = {"role": "user", "content": [part, {"type": "text", "text": _FIRST}]}
            shown = self.render([message])
            if shown is not None and shown != plain and "'type'" not in shown:
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
        return any("qztool" in (self.render(talk, [_TOOL]) or "") for talk in conversations)


def _added(plain: str, longer: str) -> str:
    """What `longer` has in addition to `plain`, in one place."""
    start = 0
    while start < len(plain) and plain[start] == longer[start : start + 1]:
        start += 1
    return longer[start : start + len(longer) - len(plain)]


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


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
