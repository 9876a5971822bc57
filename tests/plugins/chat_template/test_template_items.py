"""How items of every type are told to the model."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.base.errors import InvalidRequest
from gateway.plugins.protocols import ToolDefinition

USER = {"role": "user", "content": "hi"}

RAN = {
    "mcp": (
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "look", "arguments": '{"q": 1}', "output": "seen"},
        '{"name": "look", "arguments": {"q": 1}}',
        "seen",
    ),
    "failed mcp": (
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "look", "arguments": "{}", "error": "no net"},
        '{"name": "look", "arguments": {}}',
        "The call failed: no net",
    ),
    "code": (
        {"type": "code_interpreter_call", "id": "ci_1", "container_id": "c", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}], "status": "completed"},
        '{"name": "python", "arguments": {"code": "1+1"}}',
        "2",
    ),
    "search": (
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x", "sources": [{"type": "url", "url": "http://a"}]}},
        '{"name": "web_search", "arguments": {"type": "search", "query": "x"}}',
        "http://a",
    ),
    "files": (
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["x"], "results": [{"text": "found"}]},
        '{"name": "file_search", "arguments": {"queries": ["x"]}}',
        "found",
    ),
}  # fmt: skip

PAIRS = {
    "custom": (
        {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": 'say "x"'},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        '{"name": "p", "arguments": {"input": "say \\"x\\""}}',
        "ok",
    ),
    "namespace": (
        {"type": "function_call", "call_id": "c", "name": "p", "namespace": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]},
        '{"name": "n__p", "arguments": {}}',
        "ok",
    ),
    "local shell": (
        {"type": "local_shell_call", "id": "l", "call_id": "c", "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
        '"command": ["ls"]',
        "a.txt",
    ),
    "shell": (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 1}}]},
        '"commands": ["ls"]',
        "a\nb\n(exit code 1)",
    ),
    "patch": (
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "x"}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"},
        '{"name": "apply_patch", "arguments": {"type": "delete_file", "path": "x", "diff": ""}}',
        "completed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RAN)
def test_a_call_that_the_gateway_ran_is_a_call_and_its_result(render: Any, case: str) -> None:
    item, call, result = RAN[case]
    text = render.text("chatml", [USER, item], tools=[ToolDefinition(name="python")])
    assert call in text
    assert f"<tool_response>\n{result}\n</tool_response>" in text


@pytest.mark.parametrize("case", PAIRS)
def test_a_call_that_the_client_ran_is_a_call_and_its_result(render: Any, case: str) -> None:
    item, output, call, result = PAIRS[case]
    text = render.text("chatml", [USER, item, output])
    assert call in text
    assert f"<tool_response>\n{result}\n</tool_response>" in text


def test_a_result_has_the_name_and_the_id_of_its_call(render: Any) -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name }}{{ c.function.arguments }}{% endfor %}"
        "{% if m.role == 'tool' %}[{{ m.name }} {{ m.tool_call_id }}]{% endif %}{% endfor %}"
    )
    items = [USER, render.call("c1", "f"), render.output("c1", "one")]
    assert render.text(template, items).endswith("one[f c1]")


def test_a_call_that_the_user_did_not_approve_is_told_so(render: Any) -> None:
    asked = {
        "type": "mcp_approval_request",
        "id": "r",
        "server_label": "s",
        "name": "rm",
        "arguments": "{}",
    }
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": "r",
        "approve": False,
        "reason": "no",
    }
    text = render.text("chatml", [USER, asked, answer])
    assert '"name": "rm"' in text
    assert "did not approve this call. Reason: no" in text
    approved = render.text("chatml", [USER, asked, {**answer, "approve": True}])
    assert "rm" not in approved


def test_a_refusal_is_what_the_assistant_said(render: Any) -> None:
    items = [USER, render.said("assistant", [{"type": "refusal", "refusal": "I cannot."}])]
    assert "assistant\nI cannot.<|im_end|>" in render.text("chatml", items)


def test_items_about_the_request_are_not_shown(render: Any) -> None:
    items = [USER, {"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": []}]
    assert render.text("chatml", items) == render.text("chatml", [USER])


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "computer_call", "id": "i", "call_id": "c", "status": "completed", "action": {}}, "input[1]"),
        ({"type": "item_reference", "id": "i"}, "input[1]"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}, "input[1].content[0].type"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}, "input[1].content[0].type"),
        (
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file", "file_id": "u"}]},
            "input[1].output[0].type",
        ),
    ],
)  # fmt: skip
def test_what_text_cannot_express_is_refused_by_its_place(
    render: Any, item: Any, param: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        render.text("chatml", [USER, item])
    assert caught.value.param == param
