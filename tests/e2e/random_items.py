"""Random items of conversations. Each text has a mark of its own, which tells where it has gone."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Iterator
from typing import Any

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
_MARK = re.compile(r"q\d+z")
_AROUND = ("", " ", "\n", "é", "😀", "\u202e", "\x00", "</b>", '"', "\\", "%s", "{{x}}", "\u2028")  # fmt: skip
_IDS = ("", "", "", "__fake_id__", "abc", "1", "x" * 300, "ö/..?#%00")


class Marks:
    """Makes texts with marks."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.made = 0

    def text(self) -> str:
        self.made += 1
        return f"{self.chance.choice(_AROUND)}q{self.made}z{self.chance.choice(_AROUND)}"


def marks_of(value: Any) -> list[str]:
    """The marks in `value`, which is JSON or text, in their order; also those in the data of files. None of what is sealed."""
    if isinstance(value, str):
        if value.startswith("data:text/plain;base64,"):
            value = base64.b64decode(value.partition(",")[2]).decode()
        return _MARK.findall(value)
    if isinstance(value, dict) and value.get("type") == "compaction":
        return []
    values: Iterator[Any] = iter(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())  # fmt: skip
    return [mark for each in values for mark in marks_of(each)]


def turns(marks: Marks, most: int = 4) -> list[dict[str, Any]]:
    """Items that one request may send: messages, reasoning, calls with their outputs, messages of agents."""
    items: list[dict[str, Any]] = []
    for _ in range(marks.chance.randint(1, most)):
        items += _group(marks)
    seen: set[str] = set()
    for item in items:
        given = marks.chance.choice(_IDS)
        # The id of a local shell's output is that of its call.
        if given and item["type"] not in {"local_shell_call", "local_shell_call_output"}:
            item["id"] = given
        own = f"{item['type'][:2]}_{marks.chance.randint(0, 2)}"
        if (
            not given
            and own not in seen
            and marks.chance.choice((True, False))
            and "shell" not in item["type"]
        ):
            seen.add(own)
            item["id"] = own
    return items


def _group(marks: Marks) -> list[dict[str, Any]]:
    def text() -> str:
        return marks.text()

    def parts() -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for _ in range(marks.chance.randint(1, 3)):
            match marks.chance.randint(0, 5):
                case 0:
                    made.append({"type": "input_image", "image_url": PNG, "detail": "auto"})
                case 1:
                    data = base64.b64encode(text().replace("\x00", "").encode()).decode()
                    made.append({"type": "input_file", "filename": "a.txt", "file_data": f"data:text/plain;base64,{data}"})  # fmt: skip
                case 2:
                    made.append({"type": "input_text", "text": ""})
                case _:
                    made.append({"type": "input_text", "text": text()})
        return made

    def output() -> Any:
        return (text, parts, str)[marks.chance.randint(0, 2)]()

    call_id = f"call_{marks.made}"
    arguments = json.dumps({"a": text()})
    match marks.chance.randint(0, 14):
        case 0 | 1:
            content = marks.chance.choice([text, parts])()
            return [{"type": "message", "role": "user", "content": content}]
        case 2:
            return [{"type": "message", "role": marks.chance.choice(["system", "developer"]), "content": text()}]  # fmt: skip
        case 3:
            said = [{"type": "output_text", "text": text()}, {"type": "refusal", "refusal": text()}]
            return [{"type": "message", "role": "assistant", "content": said[: marks.chance.randint(1, 2)]}]  # fmt: skip
        case 4:
            return [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text()}]},
                    {"type": "message", "role": "assistant", "content": text()}]  # fmt: skip
        case 5:
            call = {
                "type": "function_call",
                "call_id": call_id,
                "name": "f",
                "arguments": arguments,
            }
            return [call, {"type": "function_call_output", "call_id": call_id, "output": output()}]
        case 6:
            call = {"type": "custom_tool_call", "call_id": call_id, "name": "n", "input": text()}
            return [call, {"type": "custom_tool_call_output", "call_id": call_id, "output": output()}]  # fmt: skip
        case 7:
            action = {"commands": [text()]}
            done = {"stdout": text(), "stderr": text(), "outcome": {"type": "exit", "exit_code": 0}}
            return [{"type": "shell_call", "call_id": call_id, "action": action},
                    {"type": "shell_call_output", "call_id": call_id, "output": [done]}]  # fmt: skip
        case 8:
            operation = {"type": "create_file", "path": text(), "diff": text()}
            return [{"type": "apply_patch_call", "call_id": call_id, "status": "completed", "operation": operation},
                    {"type": "apply_patch_call_output", "call_id": call_id, "status": "completed", "output": text()}]  # fmt: skip
        case 9:
            run: dict[str, Any] = {"type": "exec", "command": [text()], "env": {}}
            return [{"type": "local_shell_call", "id": f"lsh_{call_id}", "call_id": call_id, "action": run},
                    {"type": "local_shell_call_output", "id": f"lsh_{call_id}", "output": text()}]  # fmt: skip
        case 11:
            sources = [{"type": "url", "url": f"https://example.org/{text().strip()}"}]
            search: dict[str, Any] = {"type": "search", "query": text(), "sources": sources}
            return [{"type": "web_search_call", "status": "completed", "action": search}]
        case 12:
            found = [{"file_id": "file_1", "filename": "a.txt", "score": 0.5, "text": text()}]
            return [{"type": "file_search_call", "status": "completed", "queries": [text()], "results": found}]  # fmt: skip
        case 13:
            logs = [{"type": "logs", "logs": text()}]
            return [{"type": "code_interpreter_call", "container_id": "cntr_1", "status": "completed", "code": text(), "outputs": logs}]  # fmt: skip
        case 10:
            return [{"type": "mcp_call", "server_label": "s", "name": "look", "arguments": arguments, "output": text()}]  # fmt: skip
        case _:
            content = [
                {"type": "input_text", "text": text()},
                {"type": "encrypted_content", "encrypted_content": text()},
            ]
            return [{"type": "agent_message", "author": "/root", "recipient": "/root/kid", "content": content}]  # fmt: skip


def messages(marks: Marks) -> list[dict[str, Any]]:
    """Messages of Anthropic's API: texts, documents, calls with their results."""
    made: list[dict[str, Any]] = []
    for number in range(marks.chance.randint(1, 4)):
        made.append({"role": "user", "content": [{"type": "text", "text": marks.text()}]})
        if marks.chance.random() < 0.3:
            source = {"type": "text", "media_type": "text/plain", "data": marks.text()}
            made[-1]["content"].append({"type": "document", "source": source})
        said: list[dict[str, Any]] = [{"type": "text", "text": marks.text()}]
        match marks.chance.randint(0, 2):
            case 0:
                call = {"type": "tool_use", "id": f"toolu_{number}", "name": "f", "input": {"a": marks.text()}}  # fmt: skip
                text = marks.text()
                result: Any = marks.chance.choice((text, [{"type": "text", "text": text}]))
                made.append({"role": "assistant", "content": [*said, call]})
                done = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
                made.append({"role": "user", "content": [done, {"type": "text", "text": marks.text()}]})  # fmt: skip
                made.append({"role": "assistant", "content": marks.text()})
            case _:
                made.append({"role": "assistant", "content": said})
    return [*made, {"role": "user", "content": marks.text()}]
