"""The plugin author's manual: every hook has an example, and every example works."""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from types import ModuleType

import httpx
import msgspec
import pytest

import gateway_testing
from gateway import sdk
from gateway.base.deltas import TextDelta
from gateway.base.errors import ConfigurationError
from gateway.config import ModelConfig
from gateway.observe.content_policy import content_policy
from gateway.plugins import hookspecs
from gateway.plugins.hookspecs import PROJECT, ChosenPlugins
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.plugins.protocols import (
    AnswerUsage,
    EngineRequest,
    ModelInfo,
    ParserContext,
    PolicyRefusal,
    PolicyRequest,
    Principal,
    RoutingRequest,
    SessionContext,
    StoredResponse,
    ToolCall,
    Turn,
)
from gateway.startup.model_opening import open_model
from gateway.startup.model_plan import resolve_model
from gateway.wire.chat import ChatCompletion, CompletionUsage
from gateway.wire.content import InputText
from gateway.wire.items import Message
from gateway.wire.response import Response
from gateway_testing.pytest_plugin import StartGateway

pytestmark = pytest.mark.anyio

MANUAL = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text(encoding="utf-8")
HOOKS = [name for name, value in vars(hookspecs).items() if hasattr(value, f"{PROJECT}_spec")]
RESPONSE = Response(id="resp_1", created_at=0, status="completed", model="m")


def examples() -> dict[str, str]:
    """The Python code under each heading that is a hook's name."""
    parts = re.split(r"^## `(gateway_\w+)`\n", MANUAL, flags=re.MULTILINE)
    return {
        hook: re.findall(r"```python\n(.*?)```", body, re.DOTALL)[0]
        for hook, body in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """All examples, each as a module of its own."""
    modules = []
    for hook, code in examples().items():
        module = ModuleType(f"gateway_{hook}_example")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        source = compile(code, f"docs/plugins.md {hook}", "exec", dont_inherit=True)
        exec(source, vars(module))
        modules.append(module)
    return modules


@pytest.fixture
def plugins(modules: list[ModuleType]) -> PluginSet:
    """All examples, each loaded as a plugin of its own."""
    return load_plugins(extra=modules, installed=False)


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_has_an_example_in_the_manual(hook: str) -> None:
    assert f"def {hook}(" in examples()[hook]


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_says_what_it_is_for(hook: str) -> None:
    assert len((getattr(hookspecs, hook).__doc__ or "").split()) > 10


def test_the_manual_names_no_hook_that_does_not_exist() -> None:
    assert set(
        re.findall(
            r"\bgateway_(?:check_configuration|register_\w+|model_\w+|response_\w+|chat_\w+|redact_\w+|usage|open_tracer)\b",
            MANUAL,
        )
    ) == set(HOOKS)


def test_the_kits_that_the_manual_names_exist() -> None:
    assert set(re.findall(r"`(\w+Contract)`", MANUAL)) <= set(gateway_testing.__all__)


def test_every_example_registers(plugins: PluginSet) -> None:
    assert {offer.kind for offer in plugins.offers()} == {
        "engine", "renderer", "parser", "tool", "store", "api", "resource", "router",
            "authenticator", "policy", "command",
    }  # fmt: skip
    assert len(plugins.plugins) == len(HOOKS)


async def test_the_engine_the_renderer_and_the_format_work_together(plugins: PluginSet) -> None:
    config = ModelConfig(engine="parrot", renderer="transcript", parser="shouting")
    async with AsyncExitStack() as stack:
        model = await open_model(resolve_model("polly", config, plugins), stack)
        hello = Message(id="msg_1", role="user", content=[InputText(text="hello")])
        rendered = model.renderer.render(Turn(items=[hello]))
        parser = model.output_format.parser(ParserContext(tail=rendered.tail))
        request = EngineRequest(request_id="1", prompt=rendered.prompt)
        said = [
            getattr(delta, "text", "")
            async for output in model.engine.generate(request)
            for delta in parser.feed(output)
        ]
        assert "".join(said) == "USER: HELLO\nASSISTANT:"


async def test_the_tool_works(plugins: PluginSet) -> None:
    offer = plugins.tool("dice")
    config = plugins.decode_config(offer, {"sides": 2}, "tools.dice")
    async with offer.make(config) as server, server.session(SessionContext()) as session:
        [tool] = await server.tools()
        rolled = {(await session.call(ToolCall(tool.definition.name))).text for _ in range(100)}
        assert rolled == {"1", "2"}


async def test_the_router_works(plugins: PluginSet) -> None:
    offer = plugins.router("long_prompts")
    table = {"small": "s", "large": "l", "bytes": 10}
    config = plugins.decode_config(offer, table, "routers.long_prompts")
    asked = RoutingRequest(api="chat", model="auto", owner=None, size=5, models=[])
    async with offer.make(config) as router:
        assert await router.candidates(asked) == ["s", "l"]
        assert await router.candidates(msgspec.structs.replace(asked, size=11)) == ["l"]
        assert await router.candidates(msgspec.structs.replace(asked, model="s")) is None


async def test_the_policy_works(plugins: PluginSet) -> None:
    offer = plugins.policy("house_rules")
    config = plugins.decode_config(offer, {"word": "war", "max_chars": 5}, "policies.house_rules")
    about = PolicyRequest(api="completions", model="m", owner=None, texts=["peace"])
    async with offer.make(config) as policy:
        assert await policy.check(about) is about
        refused = await policy.check(msgspec.structs.replace(about, texts=["war and peace"]))
        assert isinstance(refused, PolicyRefusal)
        limiting = policy.output(about)
        assert limiting is not None
        assert limiting.feed([TextDelta("abc")]) == [TextDelta("abc")]
        assert limiting.feed([TextDelta("def"), TextDelta("g")]) == [TextDelta("de")]
        assert limiting.ended == "content_filter"


async def test_the_store_works(plugins: PluginSet, tmp_path: Path) -> None:
    offer = plugins.store("journal")
    table = {"file": str(tmp_path / "journal"), "ttl": 60}
    async with offer.make(plugins.decode_config(offer, table, "stores.journal")) as store:
        await store.put(StoredResponse(response=RESPONSE, input=[]))
        assert await store.get("resp_1") is not None
    assert (tmp_path / "journal").read_text() == "resp_1 completed\n"


def test_the_api_works(modules: list[ModuleType], gateway_server: StartGateway) -> None:
    model = {"engine": "parrot", "renderer": "transcript", "parser": "shouting"}
    config = {"server": {"apis": ["say"]}, "models": {"some/parrot": model}}
    gateway = gateway_server(config, plugins=modules)
    root = gateway.base_url.removesuffix("/v1")
    said = httpx.post(f"{root}/say/some/parrot", json="hello")
    assert said.text == "USER: HELLO\nASSISTANT:\n"
    assert said.headers["content-type"] == "text/plain; charset=utf-8"
    unknown = httpx.post(f"{root}/say/polly", json="hello")
    assert (unknown.status_code, unknown.text) == (
        404,
        "The model 'polly' does not exist here. Models: some/parrot.",
    )
    assert httpx.post(f"{root}/v1/messages", json={}).status_code == 404


def test_the_resource_is_shared_by_the_tool_and_the_api(
    modules: list[ModuleType], gateway_server: StartGateway
) -> None:
    rules = [
        {"when": "Noted.", "pieces": [{"text": "Done."}]},
        {"when": "go", "pieces": [{"call": {"name": "note", "arguments": {"text": "two"}}}]},
    ]
    config = {
        "models": {"m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}},
        "tools": {"note": {}},
        "resources": {"notes": {"first": "one"}},
    }
    gateway = gateway_server(config, plugins=modules)
    with gateway.client() as client:
        assert client.responses.create(model="m", input="go").output_text == "Done."
    root = gateway.base_url.removesuffix("/v1")
    assert httpx.get(f"{root}/notes").json() == ["one", "two"]


def test_the_command_works(
    plugins: PluginSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "three").write_text("one two three")
    (tmp_path / "none").write_text(" ")
    parser = argparse.ArgumentParser()
    count = plugins.command("words").make(parser)
    assert count(parser.parse_args([str(tmp_path / "three")])) == 0
    assert capsys.readouterr().out == f"       3 {tmp_path / 'three'}\n"
    assert count(parser.parse_args([str(tmp_path / "three"), str(tmp_path / "none")])) == 1
    with pytest.raises(ConfigurationError, match="there is no file"):
        count(parser.parse_args([str(tmp_path / "absent")]))


def test_the_profile_and_the_observer_are_called(
    plugins: PluginSet, caplog: pytest.LogCaptureFixture
) -> None:
    parrot = ModelInfo(name="m", engine="e", architecture="ParrotForCausalLM")
    assert plugins.hook.gateway_model_profile(model=parrot).parser == "shouting"
    with caplog.at_level("INFO", "audit"):
        plugins.hook.gateway_response_finished(response=RESPONSE)
    usage = CompletionUsage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    chat = ChatCompletion(id="chatcmpl-1", created=0, model="m", choices=[], usage=usage)
    with caplog.at_level("INFO", "audit"):
        plugins.hook.gateway_chat_finished(completion=chat, status="failed", error=None)
    used = AnswerUsage(
        principal=Principal(name="ada"), request_id="req_1", response_id="resp_1", api="chat", model="m", status="completed",
        seconds=1.0, input_tokens=3, output_tokens=4,
    )  # fmt: skip
    with caplog.at_level("INFO", "audit"):
        plugins.hook.gateway_usage(used=used)
    assert caplog.messages == [
        "resp_1 m completed",
        "chatcmpl-1 failed 3 tokens",
        "ada used 7 tokens of m",
    ]


def test_the_check_of_the_manual_works(plugins: PluginSet, modules: list[ModuleType]) -> None:
    [config] = [vars(each)["LotteryConfig"] for each in modules if "LotteryConfig" in vars(each)]
    for draws in (6, 60):
        chosen = ChosenPlugins(models=[], tables={("tool", "lottery"): config(draws=draws)})
        with pytest.raises(ConfigurationError) if draws > 49 else nullcontext():
            plugins.hook.gateway_check_configuration(chosen=chosen)


async def test_the_tracer_of_the_manual_works(
    plugins: PluginSet, capsys: pytest.CaptureFixture[str]
) -> None:
    async with plugins.hook.gateway_open_tracer() as tracer:
        span = tracer.begin("POST", [])
        span.record("queue", 1.0, 2.5)
        span.end(name="POST /v1/responses", error="server_error")
    assert capsys.readouterr().out == "POST > queue: 1.500 s\nPOST /v1/responses server_error\n"


def test_the_redaction_of_the_manual_works(plugins: PluginSet) -> None:
    policy = content_policy("all", plugins.hook)
    assert policy is not None
    assert policy.redacted("pay with 4111 1111-1111 1111 now", "input") == "pay with [card] now"


def test_the_manual_lists_the_modules_of_the_sdk() -> None:
    files = Path(sdk.__file__).parent.glob("*.py")
    modules = {f"gateway.sdk.{file.stem}".removesuffix(".__init__") for file in files}
    assert set(re.findall(r"^\| `(gateway\.sdk[.\w]*)` \|", MANUAL, re.MULTILINE)) == modules
