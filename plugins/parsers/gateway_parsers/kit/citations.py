"""The sources that Cohere's citations number.

A citation is `<co>text</co: 0:[1,2],1:[0]>`: results 1 and 2 of the first call, and result 0 of the second. Chat templates
number the calls of the whole conversation. If there are documents, they are the results of a call before all others.
A result that is text is result 0. If it has several lines, each is taken for a result too.

Source: the chat templates of Command R7B, Command A and Command A+, and the templates of Cohere's library melody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from gateway.sdk import CitedSource, InvalidRequest, ParamPath, Turn
from gateway.sdk.tools import CallHistory
from gateway.sdk.wire import content, decode_text, items

_BUCKET: Final = re.compile(r"(?<!\d)(\d{1,6})\s*:\s*\[([\d,\s]*)\]")
_NUMBER: Final = re.compile(r"\d+")
_MAX_SOURCES: Final = 16
"""Maximum sources of one span."""
_MAX_NUMBER: Final = 6
"""Maximum digits of a number."""
_MAX_RESULT: Final = 65_536
"""Length up to which a result is read as JSON."""
_MAX_CITED: Final = 262_144
"""Maximum length of all addresses and titles of a turn's citations. Spans after it have no sources."""
_MAX_URL: Final = 2048
_MAX_TITLE: Final = 256
_URL_KEYS: Final = ("url", "link")
_TITLE_KEYS: Final = ("title", "name", "filename", "id", "doc_id")


class NumberedSources:
    """Finds the sources of one turn by their numbers. The conversation is read when the first is wanted."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._calls: _Calls | None = None
        self._found: dict[tuple[int, int], CitedSource | None] = {}
        self._room = _MAX_CITED

    def of(self, tag: str) -> tuple[CitedSource, ...]:
        """The sources that a closing tag names, each once; those that do not exist are left out. There are none once
        the turn has cited too much."""
        if self._room < 0:
            return ()
        sources: dict[CitedSource, None] = {}
        for call, results in _BUCKET.findall(tag):
            for result in _NUMBER.findall(results):
                source = self._at(int(call), int(result)) if len(result) <= _MAX_NUMBER else None
                if source is not None:
                    sources[source] = None
        cited = tuple(islice(sources, _MAX_SOURCES))
        self._room -= sum(len(each.url) + len(each.title) for each in cited)
        return cited if self._room >= 0 else ()

    def _at(self, call: int, result: int) -> CitedSource | None:
        key = (call, result)
        if key not in self._found:
            self._found[key] = self._find(call, result)
        return self._found[key]

    def _find(self, call: int, result: int) -> CitedSource | None:
        documents = self._turn.documents
        if documents:
            if call == 0:
                return _document(documents, result)
            call -= 1
        if self._calls is None:
            self._calls = _Calls(self._turn)
        return self._calls.source(call, result)


class _Calls(CallHistory):
    """The calls of a turn, in order, and their results."""

    def __init__(self, turn: Turn) -> None:
        super().__init__({tool.name for tool in turn.tools}, turn.results)
        self._records = turn.results
        self._ids: list[str] = []
        self._texts: dict[str, str] = {}
        self._lines: dict[str, list[str]] = {}
        try:
            for item in turn.items:
                match item:
                    case items.Message() | items.Reasoning():
                        pass
                    case items.FunctionCallOutput() | items.CustomToolCallOutput():
                        self.add_result(item.call_id or "", _output_text(item.output), ())
                    case _:
                        self.read_call(item, ())
        except InvalidRequest:
            pass  # an item that prompts cannot show: what follows has no number

    def add_call(self, call_id: str, name: str, arguments: str, param: ParamPath) -> None:
        self._ids.append(call_id)

    def add_result(self, call_id: str, text: str, param: ParamPath) -> None:
        self._texts.setdefault(call_id, text)

    def source(self, call: int, result: int) -> CitedSource | None:
        if call >= len(self._ids) or (text := self._texts.get(self._ids[call])) is None:
            return None
        call_id = self._ids[call]
        fields = self._fields(call_id, text, result)
        if fields is None:
            return None
        record = self._records.get(call_id)
        cited = {each.url: each.title for each in record.sources} if record is not None else {}
        if len(cited) == 1:
            [(url, title)] = cited.items()
            fields = {"url": url, "title": title, **fields}
        return _source(fields, f"#calls/{quote(call_id, safe='')}", self.names.get(call_id, ""))

    def _fields(self, call_id: str, text: str, result: int) -> dict[str, Any] | None:
        """The object that a result of a call is, empty if it is another text; None if there is no such result."""
        if len(text) > _MAX_RESULT:
            return None if result else {}
        if not result and (whole := _object(text)):
            return whole
        if (lines := self._lines.get(call_id)) is None:
            lines = self._lines[call_id] = [line for line in text.split("\n") if line.strip()]
        if result >= max(len(lines), 1):
            return None
        return _object(lines[result]) if len(lines) > 1 else {}


def _document(documents: Any, index: int) -> CitedSource | None:
    if index >= len(documents):
        return None
    document = documents[index]
    data = document.get("data")
    fields = {**document, **data} if isinstance(data, dict) else document
    return _source(fields, f"#documents/{index}", "")


def _source(fields: Mapping[str, Any], reference: str, title: str) -> CitedSource:
    """The source that an object describes. `reference` and `title` are used if it has none."""
    urls = _texts(fields, _URL_KEYS)
    titles = _texts(fields, _TITLE_KEYS)
    return CitedSource(
        url=next((url for url in urls if _is_url(url)), reference),
        title=next(titles, title)[:_MAX_TITLE],
    )


def _texts(fields: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    values = (fields.get(key) for key in keys)
    return (value for value in values if isinstance(value, str) and value)


def _is_url(url: str) -> bool:
    """Whether it is the address of a web page, which a client may show as a link."""
    if len(url) > _MAX_URL or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _object(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        decoded = decode_text(text)
    except msgspec.DecodeError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _output_text(output: str | list[content.ToolOutputContent]) -> str:
    if isinstance(output, str):
        return output
    return "\n".join(part.text for part in output if isinstance(part, content.InputText))
