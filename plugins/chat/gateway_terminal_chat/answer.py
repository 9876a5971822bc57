"""Showing the events of one response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.sdk.commands import ApiError
from gateway_terminal_chat.screen import Screen

Json = dict[str, Any]

_REASONING: Final = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_TEXT: Final = ("response.output_text.delta", "response.refusal.delta")
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_UNSHOWN: Final = ("message", "reasoning", "mcp_list_tools", "compaction")


class AnswerPrinter:
    """Takes the events of a response and shows text, reasoning and calls of tools.

    Events come from the server and are not trusted: unexpected ones are ignored.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._text: list[str] = []
        self._names: dict[str, str] = {}
        """Names of the MCP calls that have begun, by the ids of their items."""
        self._shown: set[str] = set()
        """Ids of the items whose calls were shown."""
        self._done: list[Json] = []
        self._response: Json | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Show an event. Raises `ApiError` if the event says that the response has failed."""
        kind = event.get("type")
        if kind in _TEXT:
            delta = _string(event, "delta")
            self._text.append(delta)
            self._screen.text(delta)
        elif kind in _REASONING:
            self._screen.reasoning(_string(event, "delta"))
        elif kind == "response.output_item.added":
            item = _object(event, "item")
            self._names[_string(item, "id")] = _string(item, "name")
        elif kind == "response.mcp_call_arguments.done":
            called = _string(event, "item_id")
            self._shown.add(called)
            self._call(self._names.get(called, "tool"), _string(event, "arguments"))
        elif kind == "response.output_item.done":
            self._item(_object(event, "item"))
        elif kind in _ENDS:
            self._response = _object(event, "response")
            if kind == "response.failed":
                raise _failure(_object(self._response, "error"))
        elif kind == "error":
            raise _failure(_object(event, "error") or event)

    def final(self) -> Json:
        """The finished response. Raises `ApiError` if it has not ended."""
        if self._response is None:
            raise ApiError("The server's answer broke off.")
        if self._response.get("status") == "incomplete":
            reason = _string(_object(self._response, "incomplete_details"), "reason")
            self._screen.note("incomplete", reason or "the server does not say why")
        return self._response

    def written(self) -> list[Json]:
        """The output of a response that was interrupted: its finished items, and the text of the open message."""
        items = [item for item in self._done if item.get("type") not in ("message", "reasoning")]
        text = "".join(self._text)
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return [*items, {"type": "message", "role": "assistant", "content": content}] if text else items  # fmt: skip

    def _item(self, item: Json) -> None:
        self._done.append(item)
        kind = _string(item, "type")
        if kind in _UNSHOWN:
            return
        if _string(item, "id") not in self._shown:
            self._call(_string(item, "name") or kind.removesuffix("_call"), _input(item))
        if error := item.get("error"):
            self._screen.note("failed", " ".join(_strings(error)))
        elif result := " ".join(_results(item)):
            self._screen.note("result", result)

    def _call(self, name: str, arguments: str) -> None:
        self._screen.note("tool", f"{name} {arguments}")


def _input(item: Mapping[str, Any]) -> str:
    """The input of a tool's call, as text."""
    keys = ("arguments", "input", "code", "action", "queries")
    return " ".join(text for key in keys for text in _strings(item.get(key)))


def _results(item: Mapping[str, Any]) -> Iterator[str]:
    for key in ("output", "outputs", "results"):
        yield from _strings(item.get(key))


def _strings(value: Any) -> Iterator[str]:
    """All texts in a JSON value, in order, except types and ids."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from _strings(each)
        case dict():
            for key, each in value.items():
                if key not in ("type", "id", "status", "file_id", "image_url"):
                    yield from _strings(each)


def _failure(error: Mapping[str, Any]) -> ApiError:
    param = _string(error, "param") or None
    return ApiError(_string(error, "message") or "The response has failed.", param=param)


def _string(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _object(value: Mapping[str, Any], key: str) -> Json:
    found = value.get(key)
    return found if isinstance(found, dict) else {}
