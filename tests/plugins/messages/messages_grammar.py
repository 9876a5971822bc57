"""Checks a stream of events against the API's grammar, independently of how it was made.

Works on the bytes of a finished stream, so it can check any server of this API.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gateway_messages.message import input_of

Json = dict[str, Any]

_SERVER_TOOLS = ("web_search", "web_fetch", "code_execution", "bash_code_execution", "mcp")
_DELTAS: dict[str, dict[str, str]] = {
    "text": {"text_delta": "text", "citations_delta": "citation"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
    "server_tool_use": {"input_json_delta": "partial_json"},
    "mcp_tool_use": {"input_json_delta": "partial_json"},
    **{f"{tool}_tool_result": {} for tool in _SERVER_TOOLS},
}


class GrammarError(AssertionError):
    """The stream violates the API's grammar."""


def parse_events(body: bytes) -> list[Json]:
    """The events of a stream. Checks the framing, and that each event's name equals its type."""
    frames = body.decode().split("\n\n")
    _require(frames[-1] == "", "the last event is not ended by an empty line")
    events: list[Json] = []
    for frame in frames[:-1]:
        lines = frame.split("\n")
        _require(len(lines) == 2, f"an event has not two lines: {frame[:80]!r}")
        _require(
            lines[0].startswith("event: ") and lines[1].startswith("data: "),
            f"an event is not named, or has no data: {frame[:80]!r}",
        )
        event: Json = json.loads(lines[1].removeprefix("data: "))
        _require(event["type"] == lines[0].removeprefix("event: "), "an event has two names")
        events.append(event)
    return events


def fold_events(events: Sequence[Json]) -> Json:
    """Check a whole stream and return the message that it accumulates to, in the form of the non-streamed answer.

    Raises `GrammarError` if the stream does not begin with `message_start` or end with `message_stop`; if blocks
    overlap, are left open, or have gaps in their indices; if a delta does not match the type of its block; if
    thinking does not end with a signature; if a server tool result has no call before it or is repeated; or if
    there is not exactly one `message_delta` after all blocks.
    """
    told = [event for event in events if event["type"] != "ping"]
    kinds = [event["type"] for event in told]
    _require(bool(told) and events[0]["type"] == "message_start", "message_start is not the first")
    _require(kinds.count("message_start") == 1, "message_start comes twice")
    _require(
        kinds[-2:] == ["message_delta", "message_stop"], "message_delta, message_stop do not end it"
    )
    _require(kinds.count("message_delta") == 1, "message_delta comes twice")
    _require(kinds.count("message_stop") == 1, "message_stop comes twice")
    message: Json = dict(told[0]["message"])
    _require(message["content"] == [] and message["stop_reason"] is None, "it knows its end")
    blocks = _Blocks()
    for event in told[1:-2]:
        blocks.take(event)
    _require(blocks.open is None, "a block is left open")
    message["content"] = blocks.folded
    message |= told[-2]["delta"]
    message["usage"] = {**message["usage"], **told[-2]["usage"]}
    return message


class _Blocks:
    def __init__(self) -> None:
        self.folded: list[Json] = []
        self.open: Json | None = None
        self._parts: dict[str, list[Any]] = {}
        self._unanswered: set[str] = set()

    def take(self, event: Json) -> None:
        index = len(self.folded)
        _require(event.get("index") == index, f"{event['type']} is not of block {index}")
        match event["type"]:
            case "content_block_start":
                _require(self.open is None, "a block begins in another")
                self.open = dict(event["content_block"])
                _require(self.open["type"] in _DELTAS, f"no block is {self.open['type']}")
                self._parts = {}
                self._match_answer(self.open)
            case "content_block_delta":
                self._delta(event["delta"])
            case "content_block_stop":
                self._stop()
            case kind:
                raise GrammarError(f"{kind} stands among the blocks")

    def _delta(self, delta: Json) -> None:
        _require(self.open is not None, "a delta without a block")
        assert self.open is not None
        fields = _DELTAS[self.open["type"]]
        _require(delta["type"] in fields, f"{delta['type']} in a block of type {self.open['type']}")
        _require("signature" not in self._parts, "something comes after the signature")
        field = fields[delta["type"]]
        self._parts.setdefault(field, []).append(delta[field])

    def _stop(self) -> None:
        _require(self.open is not None, "a block ends that has not begun")
        block = self.open
        assert block is not None
        if citations := self._parts.pop("citation", None):
            block["citations"] = citations
        if "input" in block:
            block["input"] = input_of("".join(self._parts.get("partial_json", ())))
        for field in set(self._parts) & set(block):
            block[field] += "".join(self._parts[field])
        if block["type"] == "thinking":
            _require(bool(block["signature"]), "thinking ends without a signature")
        self.folded.append(block)
        self.open = None

    def _match_answer(self, block: Json) -> None:
        if block["type"] in ("server_tool_use", "mcp_tool_use"):
            self._unanswered.add(block["id"])
        elif block["type"].endswith("_tool_result"):
            call_id = block["tool_use_id"]
            _require(call_id in self._unanswered, "an answer to no call that awaits one")
            self._unanswered.remove(call_id)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise GrammarError(problem)
