"""Engines, renderers and formats that are made of others, which they find by their names."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from gateway import hookimpl
from gateway.base.errors import ConfigurationError
from gateway.config import ModelConfig
from gateway.plugins.hookspecs import EngineContext, ModelContext
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.plugins.protocols import ModelInfo
from gateway.startup.model_opening import OpenedModel, open_model
from gateway.startup.model_plan import resolve_model
from gateway.startup.registry import PluginRegistry
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio

MANUAL = Path(__file__).parents[3] / "docs" / "plugins.md"


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    of: str = ""
    options: dict[str, Any] = {}


class Wrappers:
    """`one` and `two` of each kind wrap what their tables name; `plain` wraps nothing; `broken` cannot be made."""

    def __init__(self) -> None:
        self.open: list[str] = []

    @asynccontextmanager
    async def open_wrapper(self, config: Table, context: EngineContext) -> AsyncIterator[Any]:
        async with context.registry.engine(config.of, context, config.options) as engine:
            self.open.append("wrapper")
            yield SimpleNamespace(
                of=engine, info=engine.info, tokenizer=None, capabilities=engine.capabilities
            )
            self.open.remove("wrapper")

    @asynccontextmanager
    async def open_plain(self, config: Table, context: EngineContext) -> AsyncIterator[Any]:
        assert not config.of, "the plain engine is out of memory"
        info = ModelInfo(name=context.name, engine="plain")
        self.open.append("plain")
        yield SimpleNamespace(
            info=info, path=context.path, tokenizer=None, capabilities=frozenset({"tokens"})
        )
        self.open.remove("plain")

    def wrap_renderer(self, config: Table, context: ModelContext) -> Any:
        return SimpleNamespace(of=context.registry.renderer(config.of, context, config.options))

    def wrap_parser(self, config: Table, context: ModelContext) -> Any:
        return SimpleNamespace(of=context.registry.parser(config.of, context, config.options))

    def make(self, config: Table, context: ModelContext) -> Any:
        return SimpleNamespace(names=context.registry.names("parser"), config=config)

    def refuse(self, config: Table, context: ModelContext) -> Any:
        raise ValueError("it has an error")

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("plain", self.open_plain, config=Table)
        for name in ("one", "two"):
            register(name, self.open_wrapper, config=Table, aliases=(f"also-{name}",))

    @hookimpl
    def gateway_register_renderers(self, register: Any) -> None:
        register("plain", self.make, config=Table)
        register("broken", self.refuse, config=Table)
        register("one", self.wrap_renderer, config=Table)

    @hookimpl
    def gateway_register_parsers(self, register: Any) -> None:
        register("plain", self.make, config=Table)
        register("broken", self.refuse, config=Table)
        for name in ("one", "two"):
            register(name, self.wrap_parser, config=Table)


async def opened(plugin: Wrappers | None = None, **config: Any) -> OpenedModel:
    roles = {"engine": "plain", "renderer": "plain", "parser": "plain", **config}
    plugins: PluginSet = load_plugins(extra=[plugin or Wrappers()], installed=False)
    async with AsyncExitStack() as stack:
        return await open_model(resolve_model("m", ModelConfig(**roles), plugins), stack)


async def test_each_kind_finds_the_others_of_its_kind() -> None:
    inner = {"of": "plain"}
    table = {"of": "two", "options": inner}
    plugin = Wrappers()
    model: Any = await opened(plugin, engine="one", parser="one", path="p", options={"one": table})
    assert model.engine.of.of.path == "p"
    assert model.output_format.of.of.names == ["broken", "one", "plain", "two"]
    assert plugin.open == []
    rendered: Any = await opened(renderer="one", options={"one": inner})
    assert rendered.renderer.of.config == Table()


@pytest.mark.parametrize(
    ("kind", "table", "message"),
    [
        ("engine", {"of": "plane"}, 'no loaded plugin offers an engine named \'plane\'; did you mean "plain"? Installed: one, plain, two.'),
        ("parser", {"of": "plane"}, 'no loaded plugin offers a parser named \'plane\'; did you mean "plain"? Installed: broken, one, plain, two.'),
        ("engine", {"of": "llamacpp"}, "pip install litegate-llamacpp"),
        ("parser", {"of": "plain", "options": {"off": 1}}, 'plain.off: '),
        ("renderer", {"of": "broken"}, "the renderer 'broken' cannot be created: ValueError: it has an error"),
        ("engine", {"of": "plain", "options": {"of": "x"}}, "the engine 'plain' cannot open the model: AssertionError: the plain engine is out of memory"),
        ("engine", {"of": "also-one"}, "the engine 'one' would be a part of itself (one -> one); name another one there."),
        ("renderer", {"of": "one"}, "the renderer 'one' would be a part of itself (one -> one); name another one there."),
    ],
)  # fmt: skip
async def test_what_cannot_be_had_stops_the_start_with_who_asked_for_it(
    kind: str, table: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.base.packages.is_installed", lambda package: False)
    with pytest.raises(ConfigurationError) as error:
        await opened(**{kind: "one", "options": {"one": table}})
    assert str(error.value).startswith(f"models.m: the {kind} 'one' asks for another: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["engine", "parser"])
async def test_a_circle_of_two_stops_the_start_with_its_members(kind: str) -> None:
    table = {"of": "two", "options": {"of": "one", "options": {"of": "two"}}}
    with pytest.raises(ConfigurationError) as error:
        await opened(**{kind: "one", "options": {"one": table}})
    assert "would be a part of itself (one -> two -> one); name another one there." in str(
        error.value
    )


def test_a_context_without_a_registry_says_where_tests_get_one() -> None:
    context = ModelContext(info=ModelInfo(name="m", engine="e"), tokenizer=None)
    with pytest.raises(ConfigurationError, match=r"gateway_testing\.PluginRegistry"):
        context.registry.parser("qwen3", context)
    registry = PluginRegistry(load_plugins(extra=[Wrappers()], installed=False))
    plain: Any = registry.parser("plain", context)
    assert plain.config == Table()


def manuals_example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the manual's example."""
    _, _, section = MANUAL.read_text(encoding="utf-8").partition("\n## Plugins made of others\n")
    [code] = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    module = ModuleType("gateway_made_of_others")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, str(MANUAL), "exec", dont_inherit=True), vars(module))
    return module


def test_the_manuals_example_wraps_a_parser_and_an_engine(
    gateway_server: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pieces = [{"reasoning": "Let me think."}, {"text": "It is 4."}]
    scripted = {"rules": [{"when": "2 + 2", "pieces": pieces}]}
    tables = {
        "quiet": {"parser": "qwen3"},
        "counted": {"engine": "scripted", "options": scripted},
    }
    model = {"engine": "counted", "renderer": "chat_template", "parser": "quiet", **tables}
    plugin = manuals_example(monkeypatch)
    with caplog.at_level("INFO", "counted"):
        gateway = gateway_server({"models": {"m": model}}, plugins=[plugin])
        with gateway.client() as client:
            response = client.responses.create(model="m", input="2 + 2?")
            expected = f"m: {response.usage.output_tokens} tokens"
            wait_until(lambda: expected in caplog.messages)
    assert [item.type for item in response.output] == ["message"]
    assert response.output_text == "It is 4."
    assert response.usage.output_tokens_details.reasoning_tokens > 0
