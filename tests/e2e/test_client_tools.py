"""The API's own tools that the client runs: shell, local_shell, apply_patch and tool_search, on several model families."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
MODELS = ("qwen3", "harmony", "deepseek_v3", "qwen3_coder")

LOCAL_SHELL = {
    "command": ["bash", "-lc", "ls 'a b'"],
    "working_directory": "/src",
    "timeout_ms": 900,
}
SHELL = {"commands": ["ls -l", 'cat <<EOF\n"é"\nEOF'], "timeout_ms": 1000, "max_output_length": 99}
CREATE = {"type": "create_file", "path": "a/b.py", "diff": "+print('hi')\n+\n"}
UPDATE = {"type": "update_file", "path": "b.py", "diff": "@@ def f():\n-    old\n+    new\n"}
DELETE = {"type": "delete_file", "path": "c.py", "diff": ""}

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "run it locally": ("local_shell", LOCAL_SHELL),
    "run it in a shell": ("shell", SHELL),
    "make the file": ("apply_patch", CREATE),
    "change the file": ("apply_patch", UPDATE),
    "drop the file": ("apply_patch", DELETE),
    "look for tools": ("tool_search", {"query": "weather", "limit": 2}),
}
ITEMS: dict[str, dict[str, Any]] = {
    "run it locally": {
        "type": "local_shell_call",
        "action": {"type": "exec", "env": {}, **LOCAL_SHELL},
    },
    "run it in a shell": {
        "type": "shell_call",
        "action": SHELL,
        "environment": {"type": "local"},
    },
    "make the file": {"type": "apply_patch_call", "operation": CREATE},
    "change the file": {"type": "apply_patch_call", "operation": UPDATE},
    "drop the file": {
        "type": "apply_patch_call",
        "operation": {"type": "delete_file", "path": "c.py"},
    },
    "look for tools": {
        "type": "tool_search_call",
        "execution": "client",
        "arguments": {"query": "weather", "limit": 2},
    },
}
TOOLS: list[Any] = [
    {"type": "local_shell"},
    {
        "type": "shell",
        "environment": {
            "type": "local",
            "skills": [{"name": "pdf", "description": "Reads PDFs.", "path": "/skills/pdf"}],
        },
    },
    {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client", "description": "Finds tools."},
]
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
RULES: list[dict[str, Any]] = [
    *(
        {"when": prompt, "pieces": [{"call": {"name": name, "arguments": arguments}}]}
        for prompt, (name, arguments) in CALLS.items()
    ),
    {"when": "no json", "pieces": [{"call": {"name": "shell", "arguments": '{"commands": ["rm'}}]},
    {
        "when": "no commands",
        "pieces": [{"call": {"name": "shell", "arguments": {"commands": {"a": 1}}}}],
    },
    {"when": "cut off", "finish": "length", "pieces": [{"raw": '<tool_call>\n{"name": "shell", "arguments": {"commands": ["rm -rf /tmp/x'}]},
    {"when": "one line", "pieces": [{"call": {"name": "shell", "arguments": {"commands": "ls"}}}]},
    {"when": "two things", "pieces": [{"text": "Both."}, {"call": {"name": "shell", "arguments": {"commands": []}}}, {"call": {"name": "apply_patch", "arguments": DELETE}}]},
    {"when": "the tool said so", "pieces": [{"text": "It is done."}]},
    {"when": "Tells the weather.", "pieces": [{"call": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {
        name: {
            "engine": "scripted",
            "parser": name,
            **({"renderer": name} if name == "harmony" else {}),
            "scripted": {"rules": RULES},
        }
        for name in MODELS
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("client_tools")) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=30) as client:
        yield client


def create(http: httpx.Client, **body: Any) -> Any:
    answer = http.post("/responses", json={"model": "qwen3", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def without_ids(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("id", "call_id", "status")}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prompt", CALLS)
def test_a_call_becomes_its_item_streamed_and_plain(
    http: httpx.Client, model: str, prompt: str
) -> None:
    body = {"model": model, "input": prompt, "tools": TOOLS}
    stream = parse_sse(http.post("/responses", json={**body, "stream": True}).content)
    for event in stream:
        assert SDK_EVENT.validate_python(event).type == event["type"]
    final = fold(stream)
    plain = create(http, **body)
    assert [without_ids(i) for i in final["output"]] == [without_ids(i) for i in plain["output"]]
    (item,) = final["output"]
    assert without_ids(item) == ITEMS[prompt]
    assert item["status"] == "completed"
    assert item["call_id"].startswith("call_")
    SdkResponse.model_validate(final)
    assert http.get(f"/responses/{final['id']}").json() == final


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "sent back"])
@pytest.mark.parametrize("prompt", CALLS)
def test_its_output_is_shown_to_the_model_with_the_call(
    gateway: RunningGateway, model: str, prompt: str, stored: bool
) -> None:
    """By the prompt that the engine gets: the call's own words and the output are in it."""
    with gateway.client() as client:
        first = client.responses.create(model=model, input=prompt, tools=TOOLS)
        call = first.output[0]
        output = {
            "local_shell_call": {"type": "local_shell_call_output", "id": call.call_id, "output": "the tool said so"},
            "shell_call": {
                "type": "shell_call_output",
                "call_id": call.call_id,
                "output": [{"stdout": "the tool said so", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            },
            "apply_patch_call": {
                "type": "apply_patch_call_output",
                "call_id": call.call_id,
                "status": "completed",
                "output": "the tool said so",
            },
            "tool_search_call": {
                "type": "tool_search_output",
                "call_id": call.call_id,
                "execution": "client",
                "status": "completed",
                "tools": [{**WEATHER, "description": "the tool said so"}],
            },
        }[call.type]  # fmt: skip
        if stored:
            second = client.responses.create(
                model=model, input=[output], previous_response_id=first.id, tools=TOOLS
            )
        else:
            sent: list[Any] = [{"role": "user", "content": prompt}, call.model_dump(), output]
            second = client.responses.create(model=model, input=sent, store=False, tools=TOOLS)
        assert second.output_text == "It is done."


def test_the_model_is_shown_of_its_call_what_it_wrote() -> None:
    from gateway.tools.client_run import call_arguments, client_call

    kinds: dict[str, Any] = {name: f"{name}_call" for name, _ in CALLS.values()}
    for name, arguments in CALLS.values():
        call = client_call(kinds[name], "id", "call", json.dumps(arguments))
        assert call is not None
        assert call_arguments(call) == arguments


@pytest.mark.parametrize(
    ("prompt", "status"), [("no json", "incomplete"), ("no commands", "completed")]
)
def test_a_call_that_cannot_be_run_is_shown_as_it_was_written(
    http: httpx.Client, prompt: str, status: str
) -> None:
    """As a function call: the client answers that it cannot run it, and the model tries again."""
    (item,) = create(http, input=prompt, tools=TOOLS)["output"]
    assert (item["type"], item["name"], item["status"]) == ("function_call", "shell", status)
    stream = parse_sse(
        http.post(
            "/responses", json={"model": "qwen3", "input": prompt, "tools": TOOLS, "stream": True}
        ).content
    )
    assert without_ids(fold(stream)["output"][0]) == without_ids(item)


def test_a_call_that_was_cut_off_is_nothing_to_run(http: httpx.Client) -> None:
    response = create(http, input="cut off", tools=TOOLS)
    (item,) = response["output"]
    assert (item["type"], item["status"]) == ("function_call", "incomplete")
    assert response["status"] == "incomplete"


def test_a_command_without_its_list_is_read_all_the_same(http: httpx.Client) -> None:
    (item,) = create(http, input="one line", tools=TOOLS)["output"]
    assert item["action"]["commands"] == ["ls"]


def test_several_calls_and_text_in_one_answer(http: httpx.Client) -> None:
    output = create(http, input="two things", tools=TOOLS)["output"]
    assert [item["type"] for item in output] == ["message", "shell_call", "apply_patch_call"]


@pytest.mark.parametrize("kind", ["shell", "local_shell", "apply_patch"])
def test_a_choice_of_the_tool_forces_it(http: httpx.Client, kind: str) -> None:
    response = create(
        http, input="nothing that a rule knows", tools=TOOLS, tool_choice={"type": kind}
    )
    assert response["output"][-1]["type"] == f"{kind}_call"
    assert response["tool_choice"] == {"type": kind}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": kind}]}
    response = create(http, input="nothing that a rule knows", tools=TOOLS, tool_choice=allowed)
    assert response["output"][-1]["type"] == f"{kind}_call"


def test_the_tools_are_echoed_as_they_were_sent(http: httpx.Client) -> None:
    assert create(http, input="hello", tools=TOOLS)["tools"] == TOOLS


def test_skills_of_a_local_shell_are_told_to_the_model(http: httpx.Client) -> None:
    def count(tools: list[Any]) -> int:
        body = {"model": "qwen3", "input": "hello", "tools": tools}
        return int(http.post("/responses/input_tokens", json=body).json()["input_tokens"])

    assert count([TOOLS[1]]) > count([{"type": "shell"}]) > count([])


def test_what_a_search_has_found_can_be_called_from_then_on(http: httpx.Client) -> None:
    """And what it could find is not told before."""
    hidden = {**WEATHER, "description": "Looks at the sky."}
    deferred = [*TOOLS, {**WEATHER, "defer_loading": True}]
    first = create(http, input="hello", tools=deferred)
    assert first["output"][0]["type"] == "message"
    found = {
        "type": "tool_search_output",
        "call_id": "call_1",
        "tools": [{"type": "namespace", "name": "sky", "description": "d", "tools": [hidden]}],
    }
    call = {"type": "tool_search_call", "call_id": "call_1", "arguments": {"query": "weather"}}
    for tools in (TOOLS, deferred):
        response = create(
            http,
            input=[{"role": "user", "content": "hi"}, call, found],
            tools=tools,
            tool_choice={"type": "function", "name": "get_weather"},
        )
        item = response["output"][-1]
        assert (item["type"], item["name"]) == ("function_call", "get_weather")
        assert item["namespace"] == "sky"
    # Of a stored response, the tools that were found stay.
    again = create(
        http,
        input="and now?",
        previous_response_id=response["id"],
        tools=TOOLS,
        tool_choice="required",
    )
    assert again["status"] == "completed"


def test_additional_tools_can_be_called(http: httpx.Client) -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [WEATHER]}
    response = create(http, input=[more, {"role": "user", "content": "hi"}], tool_choice="required")
    assert response["output"][-1]["name"] == "get_weather"


def test_without_a_client_search_deferred_tools_are_told_at_once(http: httpx.Client) -> None:
    tools = [{"type": "tool_search"}, {**WEATHER, "defer_loading": True}]
    response = create(http, input="hello", tools=tools)
    assert response["output"][-1]["name"] == "get_weather"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, "tools[0].environment", "unsupported_tool"),
        ({"tools": [{"type": "computer"}]}, "tools[0].type", "unsupported_tool"),
        ({"tools": [{"type": "local_shell"}, {"type": "local_shell"}]}, "tools[1].type", "duplicate_tool_name"),
        ({"tools": [], "tool_choice": {"type": "shell"}}, "tool_choice", "unsupported_parameter"),
        ({"input": [{"type": "additional_tools", "tools": [{"type": "computer"}]}]}, "input[0].tools[0]", "unsupported_tool"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused(
    http: httpx.Client, body: dict[str, Any], param: str, code: str
) -> None:
    answer = http.post("/responses", json={"model": "qwen3", "input": "hello", **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code)
