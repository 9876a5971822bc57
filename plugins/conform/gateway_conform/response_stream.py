"""Checks the grammar of a response's event stream, independently of the code that writes it.

Works on plain JSON (the `data:` of each server-sent event), so it can be used with any server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
_STATUS = {
    "response.completed": {"completed"},
    "response.incomplete": {"incomplete", "cancelled"},
    "response.failed": {"failed"},
}
# Maps the type of a delta event to the type of the event that ends its deltas, and the field with
# the whole text.
_ENDS = {
    "response.output_text.delta": ("response.output_text.done", "text"),
    "response.refusal.delta": ("response.refusal.done", "refusal"),
    "response.reasoning_text.delta": ("response.reasoning_text.done", "text"),
    "response.function_call_arguments.delta": (
        "response.function_call_arguments.done",
        "arguments",
    ),
    "response.custom_tool_call_input.delta": ("response.custom_tool_call_input.done", "input"),
    "response.mcp_call_arguments.delta": ("response.mcp_call_arguments.done", "arguments"),
    "response.code_interpreter_call_code.delta": (
        "response.code_interpreter_call_code.done",
        "code",
    ),
}
_DONE_FIELD = dict(_ENDS.values())


class GrammarError(AssertionError):
    """An event stream violates a rule. The message says which rule, and at which event."""


def parse_sse(body: bytes) -> list[Json]:
    """The events of a complete SSE body. Checks the framing and the closing `[DONE]`."""
    text = body.decode()
    require(text.endswith("data: [DONE]\n\n"), "the stream does not end with [DONE]")
    found: list[Json] = []
    for frame in text.removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]:
        if frame.startswith(":"):  # a comment, to keep the connection open
            continue
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        require(name == f"event: {event['type']}", f"frame {name} holds {event['type']}")
        found.append(event)
    return found


def fold(stream: Iterable[Json]) -> Json:
    """Check a whole stream. Returns the final response, which is built from the events and equal to that in the last
    event.

    Raises `GrammarError` if sequence numbers are not consecutive from 0; if `response.created` is not the first event;
    if an item is not added and done exactly once, with the same id and index; if items overlap that must not; if parts
    are out of order; if deltas do not add up to the final text; if there is not exactly one terminal event, at the end;
    or if the final response differs from the stream.
    """
    events = list(stream)
    require(bool(events), "the stream is empty")
    for number, event in enumerate(events):
        require(
            event["sequence_number"] == number,
            f"event {number} ({event['type']}) has sequence_number {event['sequence_number']}",
        )
    require(events[0]["type"] == "response.created", "the first event is not response.created")
    terminal = [event for event in events if event["type"] in TERMINAL]
    require(len(terminal) == 1, f"{len(terminal)} terminal events")
    require(events[-1] is terminal[0], "the terminal event is not the last")
    folder = _Folder()
    for event in events[1:-1]:
        folder.take(event)
    final: Json = events[-1]["response"]
    require(
        final["status"] in _STATUS[events[-1]["type"]],
        f"{events[-1]['type']} has status {final['status']}",
    )
    require(final["id"] == events[0]["response"]["id"], "the response's id changed")
    require(set(final) >= set(events[0]["response"]), "the final response lost fields")
    output = folder.output()
    require(output == final["output"], f"folded output {output} is not final {final['output']}")
    return final


def _without_item_id(event: Json) -> bool:
    """Whether an event about an item identifies it by `output_index` only, as some events of the API do."""
    kind: str = event["type"]
    return kind.startswith("response.shell_call_command.")


def require(condition: bool, problem: str) -> None:
    if not condition:
        raise GrammarError(problem)


class _Folder:
    def __init__(self) -> None:
        self._added: dict[int, Json] = {}
        self._done: dict[int, Json] = {}
        self._parts: dict[tuple[int, int], Json] = {}
        self._annotations: list[Json] = []
        self._open_part: tuple[int, int] | None = None
        self._sums: dict[tuple[int, int | None, str], list[str]] = {}
        self._ended: set[tuple[int, int | None, str]] = set()
        self._commands: dict[int, list[str]] = {}
        self._command_done = True
        self._summaries: dict[int, list[str]] = {}
        self._open_summary: int | None = None
        """The index of the item whose last summary part is open."""

    def take(self, event: Json) -> None:
        kind = event["type"]
        match kind:
            case "response.queued" | "response.in_progress":
                require(not self._added, f"{kind} after an item")
            case "response.output_item.added":
                self._item_added(event)
            case "response.output_item.done":
                self._item_done(event)
            case "response.content_part.added":
                self._part_added(event)
            case "response.content_part.done":
                self._part_done(event)
            case _ if kind.startswith("response.shell_call_command."):
                self._command(event)
            case _ if kind.startswith("response.reasoning_summary_"):
                self._summarized(event)
            case "response.output_text.annotation.added":
                self._annotated(event)
            case _ if kind in _ENDS:
                self._belongs(event)
                require(event["delta"] != "", f"an empty {kind}")
                self._sums.setdefault(self._key(event, kind), []).append(event["delta"])
            case _ if kind in _DONE_FIELD:
                self._sum_done(event)
            case _:
                self._belongs(event)

    def _belongs(self, event: Json) -> None:
        index = event["output_index"]
        require(index in self._added, f"{event['type']} for item {index}, which was not added")
        require(index not in self._done, f"{event['type']} for item {index}, which is done")
        item_id = self._added[index]["id"]
        require(
            event.get("item_id", item_id if _without_item_id(event) else None) == item_id,
            f"{event['type']} names {event.get('item_id')}, the item is {item_id}",
        )
        if "content_index" in event and event["type"] not in (
            "response.content_part.added",
            "response.content_part.done",
        ):
            at = (index, event["content_index"])
            require(at == self._open_part, f"{event['type']} outside its part")

    def _key(self, event: Json, kind: str) -> tuple[int, int | None, str]:
        end = _ENDS[kind][0] if kind in _ENDS else kind
        return event["output_index"], event.get("content_index"), end

    def _item_added(self, event: Json) -> None:
        index, item = event["output_index"], event["item"]
        require(index == len(self._added), f"item {index} is added after {len(self._added)}")
        require(bool(item.get("id")), f"item {index} has no id")
        require(self._open_part is None, "an item is added while a part is open")
        require(self._open_summary is None, "an item is added while a summary is open")
        require(item.get("summary", []) == [], f"item {index} is added with a summary")
        if "status" in item:
            require(
                item["status"] in ("in_progress", "completed"),
                f"item {index} is added as {item['status']}",
            )
        ids = {each["id"] for each in self._added.values()}
        require(item["id"] not in ids, f"two items have the id {item['id']}")
        self._added[index] = item

    def _item_done(self, event: Json) -> None:
        index, item = event["output_index"], event["item"]
        require(index in self._added, f"item {index} is done and was not added")
        require(index not in self._done, f"item {index} is done twice")
        added = self._added[index]
        for field in ("id", "type", "call_id", "name", "role", "server_label"):
            require(
                item.get(field) == added.get(field), f"item {index} changed its {field} at done"
            )
        require(item.get("status") != "in_progress", f"item {index} is done as in_progress")
        require(self._open_part is None, f"item {index} is done with an open part")
        content = item.get("content")
        if content is not None:
            announced = [part for (at, _), part in sorted(self._parts.items()) if at == index]
            require(
                announced == content,
                f"item {index} does not hold the parts that its events announced",
            )
        for field in ("arguments", "input"):
            if field in item:
                self._sum_is(index, field, item[field])
        if item["type"] == "reasoning":
            require(self._open_summary != index, f"item {index} is done with an open summary")
            summary = [part["text"] for part in item["summary"]]
            require(self._summaries.get(index, []) == summary, f"item {index}: summaries differ")
        if item["type"] == "shell_call":
            require(self._command_done, f"item {index} is done with an open command")
            told_commands = self._commands.get(index, [])
            require(told_commands == item["action"]["commands"], f"item {index}: commands differ")
        self._done[index] = item

    def _command(self, event: Json) -> None:
        self._belongs(event)
        commands = self._commands.setdefault(event["output_index"], [])
        match event["type"].rpartition(".")[2]:
            case "added":
                require(self._command_done, "a command is added while another is open")
                require(event["command_index"] == len(commands), "commands are out of order")
                commands.append(event["command"])
                self._command_done = False
            case "delta":
                require(event["delta"] != "", f"an empty {event['type']}")
                commands[-1] += event["delta"]
            case _:
                require(commands[-1] == event["command"], "deltas and command differ")
                self._command_done = True

    def _summarized(self, event: Json) -> None:
        self._belongs(event)
        index, at, kind = event["output_index"], event["summary_index"], event["type"]
        parts = self._summaries.setdefault(index, [])
        if kind == "response.reasoning_summary_part.added":
            require(self._open_summary is None, "a summary part is added while another is open")
            require(at == len(parts), f"summary part {at} of item {index} is out of order")
            require(event["part"] == {"type": "summary_text", "text": ""}, f"{kind} with a text")
            parts.append("")
            self._open_summary = index
            return
        require((self._open_summary, at) == (index, len(parts) - 1), f"{kind} outside its part")
        end = (index, at, "response.reasoning_summary_text.done")
        match kind:
            case "response.reasoning_summary_text.delta":
                require(end not in self._ended, f"{kind} after its end")
                require(event["delta"] != "", f"an empty {kind}")
                parts[-1] += event["delta"]
            case "response.reasoning_summary_text.done":
                require(end not in self._ended, f"{kind} twice")
                require(event["text"] == parts[-1], f"{kind}: deltas do not add up")
                self._ended.add(end)
            case _:
                require(end in self._ended, f"{kind} before the end of its text")
                whole = {"type": "summary_text", "text": parts[-1]}
                require(event["part"] == whole, f"summary part {at}: deltas and part differ")
                self._open_summary = None

    def _sum_is(self, index: int, field: str, whole: str) -> None:
        for (at, _, end), parts in self._sums.items():
            if at == index and _DONE_FIELD[end] == field:
                require("".join(parts) == whole, f"item {index}: deltas and {field} differ")

    def _part_added(self, event: Json) -> None:
        self._belongs(event)
        index, part = event["output_index"], event["content_index"]
        before = sum(1 for at, _ in self._parts if at == index)
        require(self._open_part is None, "a part is added while another is open")
        require(part == before, f"part {part} of item {index} is added after {before}")
        self._open_part = (index, part)

    def _part_done(self, event: Json) -> None:
        self._belongs(event)
        at = (event["output_index"], event["content_index"])
        require(self._open_part == at, f"part {at} is done and not open")
        part = event["part"]
        whole = part.get("text", part.get("refusal"))
        summed = ["".join(parts) for (i, c, _), parts in self._sums.items() if (i, c) == at] or [""]
        require(summed == [whole], f"part {at}: deltas and part differ")
        annotations, self._annotations = self._annotations, []
        require(part.get("annotations", []) == annotations, f"part {at}: annotations differ")
        self._parts[at] = part
        self._open_part = None

    def _annotated(self, event: Json) -> None:
        self._belongs(event)
        annotation = event["annotation"]
        index, part = event["output_index"], event["content_index"]
        require(event["annotation_index"] == len(self._annotations), "annotations out of order")
        announced = "".join(self._sums.get((index, part, "response.output_text.done"), ()))
        end = annotation.get("end_index", len(announced))
        require(end <= len(announced), "an annotation of text that was not sent yet")
        self._annotations.append(annotation)

    def _sum_done(self, event: Json) -> None:
        self._belongs(event)
        kind = event["type"]
        key = self._key(event, kind)
        require(key not in self._ended, f"{kind} twice")
        self._ended.add(key)
        whole = event[_DONE_FIELD[kind]]
        require("".join(self._sums.get(key, [])) == whole, f"{kind}: deltas do not add up")

    def output(self) -> list[Json]:
        """The finished items, in order."""
        missing = sorted(set(self._added) - set(self._done))
        require(not missing, f"items {missing} were added and are never done")
        return [self._done[index] for index in sorted(self._done)]
