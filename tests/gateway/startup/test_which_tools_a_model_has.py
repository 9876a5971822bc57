"""Tools that requests ask the server to run: those that are not here, and those that a model may not use."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gateway import hookimpl
from gateway.access.access import hash_key
from gateway.base.errors import ConfigurationError
from gateway.plugins.protocols import (
    ServerTool,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
)
from gateway.tools.functions import functions
from gateway_scripted.engine import ScriptedEngine
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

WEB_SEARCH = {"type": "web_search"}
HOSTED: list[dict[str, Any]] = [
    WEB_SEARCH,
    {"type": "web_search_preview"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "image_generation"},
    {"type": "computer"},
    {"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "linux"},
    {"type": "shell", "environment": {"type": "container_auto"}},
    {"type": "mcp", "server_label": "far", "server_url": "https://far.example/mcp"},
]  # fmt: skip
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def roll() -> str:
    """Throws a die."""
    return "six"


class Search(ToolServer):
    """A tool server that is asked for by the type `web_search`."""

    label = "search"

    async def tools(self) -> Sequence[ServerTool]:
        definition = ToolDefinition(name="find_pages", parameters={"type": "object"})
        return [ServerTool(definition=definition, request_type="web_search")]

    async def call(self, call: ToolCall) -> ToolResult:
        return ToolResult(text="a page")


class Adapted(ScriptedEngine):
    """A scripted engine with a LoRA adapter."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self._info = msgspec.structs.replace(self._info, adapters=("tuned",))


class TestPlugin:
    """`dice` and `other_dice` offer one name."""

    @asynccontextmanager
    async def search(self, config: Any) -> AsyncIterator[Search]:
        yield Search()

    @asynccontextmanager
    async def adapted(self, config: Any, context: Any) -> AsyncIterator[Adapted]:
        yield Adapted(name=context.name)

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("dice", functions("dice", roll))
        register("other_dice", functions("other_dice", roll))
        register("search", self.search)

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("adapted", self.adapted)


MODEL = {"engine": "scripted"}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway({"models": {"m": MODEL}}, tmp_path_factory.mktemp("refusing")) as running:
        yield running


@pytest.fixture(scope="module")
def omitting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {"server": {"unavailable_tools": "omit"}, "models": {"m": MODEL}}
    with run_gateway(config, tmp_path_factory.mktemp("omitting")) as running:
        yield running


@pytest.fixture(scope="module")
def choosy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with tools whose models differ in what they may use."""
    config: dict[str, Any] = {
        "server": {"chat_tools": ["dice"]},
        "tools": {"dice": {}, "search": {}},
        "models": {
            "all": MODEL,
            "dicing": {**MODEL, "allowed_tools": ["dice"]},
            "searching": {"engine": "adapted", "allowed_tools": ["search"]},
            "bare": {**MODEL, "allowed_tools": []},
        },
    }
    folder = tmp_path_factory.mktemp("choosy")
    with run_gateway(config, folder, plugins=[TestPlugin()]) as running:
        yield running


def post(gateway: RunningGateway, path: str = "/responses", **body: Any) -> httpx.Response:
    body = {"model": "m", "input": "hello", **body}
    return httpx.post(gateway.base_url + path, json=body, timeout=60)


def told(gateway: RunningGateway, model: str = "m") -> str:
    """The prompt of the model's latest generation."""
    engine: Any = gateway.services.models[model].engine
    return str(engine.tokenizer.decode(engine.requests[-1].prompt.token_ids))


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: tool["type"])
def test_a_tool_that_nobody_runs_is_refused_with_what_to_do(
    refusing: RunningGateway, tool: dict[str, Any]
) -> None:
    answer = post(refusing, tools=[LOOK, tool])
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "unsupported_tool"
    assert error["param"].startswith("tools[1].")
    assert 'unavailable_tools = "omit"' in error["message"]


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: tool["type"])
def test_it_is_left_out_where_the_server_says_so(
    omitting: RunningGateway, tool: dict[str, Any]
) -> None:
    answer = post(omitting, tools=[tool, LOOK], stream=True)
    response = fold(parse_sse(answer.content))
    assert response["status"] == "completed"
    assert [shown["type"] for shown in response["tools"]] == [tool["type"], "function"]
    assert '"look"' in told(omitting)
    assert tool["type"] not in told(omitting)


def test_a_request_of_nothing_else_has_no_tools(omitting: RunningGateway) -> None:
    assert post(omitting, tools=HOSTED).status_code == 200
    assert "tools" not in told(omitting)


def test_each_type_is_logged_once_and_counted_always(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"server": {"unavailable_tools": "omit"}, "models": {"m": MODEL}}
    caplog.set_level(logging.WARNING, "gateway.tools")
    with run_gateway(config, tmp_path) as gateway:
        for _ in range(2):
            tools = [WEB_SEARCH, {"type": "computer"}, {"type": "web_search_preview"}]
            assert post(gateway, tools=tools).status_code == 200
        shown = httpx.get(gateway.base_url.removesuffix("/v1") + "/metrics").text
    lines = [each.getMessage() for each in caplog.records if each.name == "gateway.tools"]
    assert ["'web_search'" in line for line in lines] == [True, False]
    assert all("unavailable_tools" in line for line in lines)
    assert 'gateway_omitted_tools_total{type="web_search"} 2.0' in shown
    assert 'gateway_omitted_tools_total{type="computer"} 2.0' in shown


ALLOWED = {"type": "allowed_tools", "mode": "auto"}


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([WEB_SEARCH, LOOK], {"type": "web_search"}),
        ([{"type": "web_search_preview"}, LOOK], {"type": "web_search_preview"}),
        ([WEB_SEARCH], "required"),
        ([WEB_SEARCH, LOOK], {**ALLOWED, "mode": "required", "tools": [WEB_SEARCH]}),
    ],
)
def test_a_choice_that_demands_it_is_refused(
    omitting: RunningGateway, tools: list[Any], choice: Any
) -> None:
    answer = post(omitting, tools=tools, tool_choice=choice)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("tool_choice", "unsupported_tool")
    assert "web_search" in error["message"]


@pytest.mark.parametrize(
    "choice",
    [
        "auto",
        "none",
        "required",
        {"type": "function", "name": "look"},
        {**ALLOWED, "tools": [WEB_SEARCH]},
        {**ALLOWED, "mode": "required", "tools": [WEB_SEARCH, {"type": "function", "name": "look"}]},
    ],
)  # fmt: skip
def test_a_choice_that_can_do_without_it_is_kept(omitting: RunningGateway, choice: Any) -> None:
    answer = post(omitting, tools=[WEB_SEARCH, LOOK], tool_choice=choice)
    assert answer.status_code == 200, answer.text
    called = [item["type"] for item in answer.json()["output"]] == ["function_call"]
    assert called == ("required" in str(choice) or "'name'" in str(choice))


def test_what_the_client_runs_is_not_left_out(omitting: RunningGateway) -> None:
    assert post(omitting, tools=[{"type": "shell"}, {"type": "apply_patch"}]).status_code == 200
    assert '"shell"' in told(omitting)
    assert '"apply_patch"' in told(omitting)


@pytest.mark.parametrize(
    ("model", "dice", "search"),
    [
        ("all", True, True),
        ("dicing", True, False),
        ("searching", False, True),
        ("tuned", False, True),
        ("bare", False, False),
    ],
)
def test_a_model_has_the_tools_that_it_may_use(
    choosy: RunningGateway, model: str, dice: bool, search: bool
) -> None:
    """An adapter may use what its model may."""
    assert post(choosy, model=model).status_code == 200
    assert ("roll" in told(choosy, model)) == dice
    asked = post(choosy, model=model, tools=[WEB_SEARCH])
    assert asked.status_code == (200 if search else 400), asked.text
    if search:
        assert "find_pages" in told(choosy, model)
    else:
        assert asked.json()["error"]["code"] == "unsupported_tool"
        assert "web_search" not in asked.json()["error"]["message"].partition("Supported")[2]
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    assert post(choosy, "/chat/completions", model=model, **chat).status_code == 200
    assert ("roll" in told(choosy, model)) == dice


def test_a_key_has_the_tools_that_it_may_use(tmp_path: Path) -> None:
    names = {"all": None, "dicing": ["dice"], "bare": []}
    keys = [
        {"name": name, "sha256": hash_key(f"sk-{name}"), "tools": tools}
        for name, tools in names.items()
    ]
    config: dict[str, Any] = {
        "server": {"chat_tools": ["dice"], "api_keys": keys},
        "tools": {"dice": {}, "search": {}},
        "models": {"m": MODEL},
    }
    chat = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    searching_chat = {**chat, "web_search_options": {}}
    respond = {"model": "m", "input": "hello"}
    with run_gateway(config, tmp_path, plugins=[TestPlugin()]) as gateway:

        def send(name: str, path: str, body: Any) -> httpx.Response:
            headers = {"authorization": f"Bearer sk-{name}"}
            return httpx.post(gateway.base_url + path, json=body, headers=headers, timeout=60)

        for name, dice, search in (("all", 1, 1), ("dicing", 1, 0), ("bare", 0, 0)):
            for path, body in (("/responses", respond), ("/chat/completions", chat)):
                assert send(name, path, body).status_code == 200
                assert ("roll" in told(gateway)) == dice
            for answer in (
                send(name, "/responses", {**respond, "tools": [WEB_SEARCH]}),
                send(name, "/chat/completions", searching_chat),
            ):
                if name == "all" and "web_search_options" in answer.request.content.decode():
                    continue  # this one is not offered in chats
                assert answer.status_code == (200 if search else 403), answer.text
                if not search:
                    assert answer.json()["error"]["code"] == "tool_not_allowed"


def test_a_tool_of_another_model_is_left_out_too(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "server": {"unavailable_tools": "omit"},
        "tools": {"search": {}},
        "models": {"m": {**MODEL, "allowed_tools": []}, "other": MODEL},
    }
    with run_gateway(config, tmp_path, plugins=[TestPlugin()]) as gateway:
        for model, has in (("m", False), ("other", True)):
            assert post(gateway, model=model, tools=[WEB_SEARCH]).status_code == 200
            assert ("find_pages" in told(gateway, model)) == has


def test_a_name_that_no_table_has_stops_the_start(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "tools": {"search": {}},
        "models": {"m": {**MODEL, "allowed_tools": ["serach"]}},
    }
    message = (
        r'models\.m\.allowed_tools: there is no table \[tools\.serach\]; did you mean "search"\?$'
    )
    with (
        pytest.raises(ConfigurationError, match=message),
        run_gateway(config, tmp_path, plugins=[TestPlugin()]),
    ):
        pass


def test_two_tools_of_one_name_are_for_different_models(tmp_path: Path) -> None:
    tools: dict[str, Any] = {"dice": {}, "other_dice": {}}
    apart = {name: {**MODEL, "allowed_tools": [name]} for name in tools}
    with run_gateway({"tools": tools, "models": apart}, tmp_path, plugins=[TestPlugin()]):
        pass
    with (
        pytest.raises(ConfigurationError, match=r"a tool named 'roll' to the model 'm'"),
        run_gateway({"tools": tools, "models": {"m": MODEL}}, tmp_path, plugins=[TestPlugin()]),
    ):
        pass
