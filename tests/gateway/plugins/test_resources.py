"""Resources: what tools and APIs share is opened once, before them, and closed after them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from gateway import hookimpl
from gateway.base.errors import ConfigurationError, GatewayError
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.hookspecs import OpenApiPlugin, OpenResource, OpenTool, Register
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.plugins.protocols import NoConfig, Reply, ServerTool, ToolCall, ToolResult, ToolServer
from gateway.startup.selection import resolve_apis, resolve_resources
from gateway_testing.server import run_gateway


class PoolConfig(Struct, frozen=True, forbid_unknown_fields=True):
    size: int = 1


class User(ToolServer):
    """A tool server and an API, neither of which does anything."""

    label = "user"
    routes = ()

    async def tools(self) -> list[ServerTool]:
        return []

    async def call(self, call: ToolCall) -> ToolResult:
        raise NotImplementedError

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply(body=b"", status=error.status)


class Plugin:
    """Offers the resource `pool`, the tools `one` and `two` and the API `pool`, which need it; and keeps a diary."""

    __name__ = "gateway_pools"

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.given: list[Any] = []

    @asynccontextmanager
    async def pool(self, config: PoolConfig) -> AsyncIterator[object]:
        self.diary.append(f"pool of {config.size} opens")
        yield object()
        self.diary.append("pool closes")

    def user(self, name: str) -> Callable[..., Any]:
        @asynccontextmanager
        async def opened(config: NoConfig, *, pool: object) -> AsyncIterator[User]:
            self.diary.append(f"{name} opens")
            self.given.append(pool)
            yield User()
            self.diary.append(f"{name} closes")

        return opened

    @hookimpl
    def gateway_register_resources(self, register: Register[OpenResource]) -> None:
        register("pool", self.pool, config=PoolConfig)

    @hookimpl
    def gateway_register_tools(self, register: Register[OpenTool]) -> None:
        register("one", self.user("one"), needs=("pool",))
        register("two", self.user("two"), needs=("pool",))

    @hookimpl
    def gateway_register_apis(self, register: Register[OpenApiPlugin]) -> None:
        register("pool", self.user("front"), needs=("pool",))


class Alone:
    """A tool whose resource nobody offers."""

    __name__ = "gateway_alone"

    @hookimpl
    def gateway_register_tools(self, register: Register[OpenTool]) -> None:
        register("alone", lambda config: None, needs=("pool",))  # type: ignore[arg-type, return-value]


def loaded(*plugins: object) -> PluginSet:
    return load_plugins(extra=plugins, installed=False)


def config(tools: Any, resources: Any = {}, routes: list[str] | None = None) -> Config:  # noqa: B006
    return Config(
        server=ServerConfig(apis=routes),
        models={"m": ModelConfig()},
        tools=tools,
        resources=resources,
    )


def test_it_is_opened_once_for_all_that_need_it_and_outlives_them(
    tmp_path: Path,
) -> None:
    plugin = Plugin()
    table = {
        "models": {"m": {"engine": "scripted"}},
        "tools": {"one": {}, "two": {}},
        "resources": {"pool": {"size": 3}},
    }
    with run_gateway(table, tmp_path, plugins=[plugin]):
        assert plugin.diary == ["pool of 3 opens", "front opens", "one opens", "two opens"]
        assert len(set(map(id, plugin.given))) == 1
    assert plugin.diary[4:] == ["two closes", "one closes", "front closes", "pool closes"]


def test_what_nobody_needs_is_not_opened() -> None:
    assert resolve_resources(config({}), loaded(Plugin())) == []


def test_a_api_alone_may_need_it() -> None:
    [(offer, made)] = resolve_resources(config({}, routes=["pool"]), loaded(Plugin()))
    assert (offer.name, made) == ("pool", PoolConfig())


@pytest.mark.parametrize(("routes", "served"), [(None, ["pool"]), ([], [])])
def test_the_api_of_its_name_comes_with_it(routes: list[str] | None, served: list[str]) -> None:
    found = resolve_apis(config({"one": {}}, routes=routes), loaded(Plugin()))
    assert [offer.name for offer, _ in found] == served


@pytest.mark.parametrize(("routes", "served"), [(None, ["pool"]), ([], [])])
def test_the_api_of_its_name_comes_with_its_table(
    routes: list[str] | None, served: list[str]
) -> None:
    asked = config({}, {"pool": {"size": 3}}, routes)
    assert [offer.name for offer, _ in resolve_apis(asked, loaded(Plugin()))] == served
    assert [made for _, made in resolve_resources(asked, loaded(Plugin()))] == [
        PoolConfig(size=3)
    ] * len(served)


@pytest.mark.parametrize(
    ("plugin", "tools", "resources", "sentence"),
    [
        (Alone(), {"alone": {}}, {}, "tools.alone: no loaded plugin offers a resource named 'pool'. Installed: none."),
        (Plugin(), {"one": {}}, {"pol": {}}, "resources.pol: no loaded plugin offers a resource named 'pol'; did you mean \"pool\"? Installed: pool."),
        (Plugin(), {"one": {}}, {"pool": {"sice": 2}}, "resources.pool.sice: there is no such key; did you mean \"size\"?"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(
    plugin: object, tools: Any, resources: Any, sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_resources(config(tools, resources), loaded(plugin))
    assert str(caught.value) == sentence


def offering(kind: str, name: str, **more: Any) -> object:
    class Offering:
        __name__ = "gateway_wrong"

    def register_it(self: object, register: Any) -> None:
        register(name, lambda config: None, **more)

    hook = f"gateway_register_{kind}s"
    register_it.__name__ = hook
    setattr(Offering, hook, hookimpl(register_it))
    return Offering()


@pytest.mark.parametrize(
    ("plugin", "sentence"),
    [
        (offering("resource", "a-pool"), "'a-pool' is not a valid name for a resource, which is given as the argument of its name"),
        (offering("engine", "e", needs=("pool",)), "the engine 'e' needs resources, and only tools and APIs are given any"),
        (offering("tool", "t", needs_tool=True), "the tool 't' has needs_tool, which is for APIs only"),
        (offering("tool", "t", needs="pool"), "the needs of the tool 't' are one string, not a tuple"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered_is_said(plugin: object, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(plugin)
    assert sentence in str(caught.value)
