"""Checks the grammar of a stream of chat chunks, independently of the code that writes them.

Works on plain JSON (the `data:` of each server-sent event), so it can be used with any server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from gateway_conform.response_stream import GrammarError, Json, require

_DONE = "data: [DONE]\n\n"
_STABLE = ("id", "object", "created", "model")
_REASONING = ("reasoning_content", "reasoning")


def parse_chunks(body: bytes) -> list[Json]:
    """The chunks of a complete SSE body. Checks the framing and the closing `[DONE]`."""
    text = body.decode()
    require(text.endswith(_DONE), "the stream does not end with [DONE]")
    frames = text.removesuffix(_DONE).split("\n\n")
    require(frames[-1] == "", "a frame is not ended by an empty line")
    for frame in frames[:-1]:
        require(frame.startswith("data: "), f"a frame is not data: {frame[:60]!r}")
        require("\n" not in frame, f"a frame has two lines: {frame[:60]!r}")
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]


def fold_chunks(chunks: Iterable[Json], *, includes_usage: bool = False) -> Json:
    """Check a whole stream and return the equivalent completion, in the form of a non-streaming answer.

    Raises `GrammarError` if an id, model or time changes; if the first chunk of a choice has no role, or a later chunk
    has one; if a choice does not have exactly one finish reason, in its last chunk; if the indices of calls are not
    consecutive from 0, or a call continues after the next has begun; if the arguments of a call that must be run are
    not JSON; if there is usage that was not requested; or if requested usage is not in the last chunk alone.
    """
    every = list(chunks)
    require(bool(every), "the stream is empty")
    for field in _STABLE:
        require(len({chunk[field] for chunk in every}) == 1, f"'{field}' changes")
    usage = _usage(every, includes_usage)
    choices: dict[int, _Choice] = {}
    for chunk in every:
        for part in chunk["choices"]:
            choices.setdefault(part["index"], _Choice(part["index"])).take(part)
    require(sorted(choices) == list(range(len(choices))), f"choices are {sorted(choices)}")
    completion: Json = {field: every[0][field] for field in _STABLE}
    completion["choices"] = [choices[index].folded() for index in sorted(choices)]
    if usage is not None:
        completion["usage"] = usage
    return completion


def _usage(chunks: Sequence[Json], included: bool) -> Json | None:
    usage_chunks = [chunk for chunk in chunks if not chunk["choices"]]
    if not included:
        require(not usage_chunks, "a chunk without choices, though no usage was asked for")
        require(not any(chunk.get("usage") for chunk in chunks), "usage that nobody asked for")
        return None
    require(usage_chunks == [chunks[-1]], "the usage chunk is not one, or not the last")
    require(all("usage" in chunk for chunk in chunks), "a chunk says nothing of usage")
    usage: Json = chunks[-1]["usage"]
    total = usage["prompt_tokens"] + usage["completion_tokens"]
    require(usage["total_tokens"] == total, "usage does not add up")
    return usage


class _Choice:
    def __init__(self, index: int) -> None:
        self._name = f"choice {index}"
        self._index = index
        self._sums: dict[str, list[str]] = {}
        self._calls: list[Json] = []
        self._function: Json | None = None
        self._logprobs: list[Json] | None = None
        self._token_ids: list[int] = []
        self._role = False
        self._finish: str | None = None

    def take(self, part: Json) -> None:
        require(self._finish is None, f"{self._name} goes on after its finish reason")
        delta = part["delta"]
        if self._role:
            require("role" not in delta, f"{self._name} tells its role twice")
        else:
            require(delta.get("role") == "assistant", f"{self._name} does not begin with its role")
            self._role = True
        for field in ("content", "refusal", *_REASONING):
            if delta.get(field):
                self._sums.setdefault(field, []).append(delta[field])
        for call in delta.get("tool_calls") or ():
            self._call(call)
        if function := delta.get("function_call"):
            self._legacy(function)
        if logprobs := part.get("logprobs"):
            self._logprobs = [*(self._logprobs or ()), *logprobs["content"]]
        self._token_ids += part.get("token_ids") or ()
        self._finish = part["finish_reason"]
        if self._finish is not None:
            require(delta == {}, f"{self._name} writes in its last chunk")

    def _call(self, call: Json) -> None:
        if "id" in call:
            require(
                call["index"] == len(self._calls),
                f"{self._name} begins call {call['index']} as its {len(self._calls)}th",
            )
            require(
                call["id"] not in {each["id"] for each in self._calls},
                f"{self._name} has two calls with the id {call['id']}",
            )
            kind = call["type"]
            inner = call[kind]
            require(bool(inner["name"]), f"{self._name} has a call without a name")
            self._calls.append({"id": call["id"], "type": kind, kind: dict(inner)})
            return
        last = len(self._calls) - 1
        require(call["index"] == last, f"{self._name} writes call {call['index']}, not {last}")
        known = self._calls[last]
        kind = known["type"]
        field = "input" if kind == "custom" else "arguments"
        known[kind][field] += call[kind][field]

    def _legacy(self, function: Json) -> None:
        if "name" in function:
            require(self._function is None, f"{self._name} calls two functions")
            self._function = dict(function)
            return
        require(self._function is not None, f"{self._name} writes arguments before a name")
        assert self._function is not None
        self._function["arguments"] += function["arguments"]

    def folded(self) -> Json:
        require(self._finish is not None, f"{self._name} has no finish reason")
        if self._finish in ("tool_calls", "function_call"):
            self._check_calls()
        content = "".join(self._sums.get("content", ()))
        refusal = "".join(self._sums.get("refusal", ())) or None
        called = bool(self._calls or self._function)
        message: Json = {
            "role": "assistant",
            "content": content or (None if called or refusal else ""),
            "refusal": refusal,
        }
        for field in _REASONING:
            if field in self._sums:
                message[field] = "".join(self._sums[field])
        if self._calls:
            message["tool_calls"] = self._calls
        if self._function:
            message["function_call"] = self._function
        choice: Json = {
            "index": self._index,
            "message": message,
            "logprobs": None if self._logprobs is None else {"content": self._logprobs},
            "finish_reason": self._finish,
        }
        if self._token_ids:
            choice["token_ids"] = self._token_ids
        return choice

    def _check_calls(self) -> None:
        functions = [call["function"] for call in self._calls if call["type"] == "function"]
        if self._function is not None:
            functions.append(self._function)
        require(
            bool(functions or self._calls), f"{self._name} finished with {self._finish} and no call"
        )
        for function in functions:
            try:
                json.loads(function["arguments"])
            except ValueError:
                raise GrammarError(
                    f"{self._name} calls {function['name']} with {function['arguments']!r}"
                ) from None
