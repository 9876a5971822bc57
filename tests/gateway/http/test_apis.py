"""Further APIs: which are served, where their routes may be, and how their errors are told."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import httpx
import pytest
from litestar.testing import TestClient

from gateway.base.errors import ConfigurationError, EngineError
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.http.app import create_app
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.plugins.protocols import Reply, Route, RouteRequest
from gateway.startup.selection import resolve_apis
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import RunningGateway
from tests.gateway.http.front_api import Api, ApiPlugin, FrontConfig


async def hello(request: RouteRequest) -> Reply:
    return Reply(body=b"front")


async def break_down(request: RouteRequest) -> Reply:
    raise ValueError("a mistake of the API's author")


async def fail(request: RouteRequest) -> Reply:
    raise EngineError("It broke.")


async def tell(request: RouteRequest) -> Reply:
    found = [request.id, request.owner, request.headers["x-mine"], dict(request.query), dict(request.path_parameters)]  # fmt: skip
    return Reply(body=repr(found).encode(), status=201, headers={"x-yours": "1"})


async def measure(request: RouteRequest) -> Reply:
    async with aclosing(request.stream(1000)) as body:
        return Reply(body=str(sum([len(part) async for part in body])).encode())


def route(path: str, method: Any = "GET", handle: Any = hello, header: str | None = None) -> Route:
    return Route(method=method, path=path, handle=handle, header=header)


def start(
    gateway_server: StartGateway, *plugins: ApiPlugin, routes: list[str] | None = None
) -> RunningGateway:
    server = {"apis": routes if routes is not None else [n for p in plugins for n in p._apis]}
    return gateway_server({"server": server, "models": {"m": {"engine": "scripted"}}}, plugins=plugins)  # fmt: skip


def config(routes: list[str] | None = None, **tables: dict[str, Any]) -> Config:
    return Config(server=ServerConfig(apis=routes), models={"m": ModelConfig()}, apis=tables)


def loaded(*plugins: ApiPlugin) -> PluginSet:
    return load_plugins(extra=plugins, installed=False)


def test_what_the_configuration_names_is_served_in_its_order() -> None:
    plugins = loaded(ApiPlugin(one=Api(), two=Api()), ApiPlugin(messages=Api()))
    resolved = resolve_apis(config(["two", "one"], two={"greeting": "hi"}), plugins)
    assert [(offer.name, made) for offer, made in resolved] == [
        ("two", FrontConfig("hi")),
        ("one", FrontConfig()),
    ]
    assert resolve_apis(config([]), plugins) == []


def test_the_standard_one_is_served_where_it_is_installed_and_nothing_is_said() -> None:
    installed = loaded(ApiPlugin(messages=Api(), other=Api()))
    assert [offer.name for offer, _ in resolve_apis(config(), installed)] == ["messages"]
    assert resolve_apis(config(), loaded(ApiPlugin(other=Api()))) == []


def test_what_comes_with_a_selected_tool_is_served_with_it() -> None:
    installed = loaded(ApiPlugin(messages=Api(), files=Api()))
    selected = Config(models={"m": ModelConfig()}, tools={"files": {}, "python": {}})
    assert [offer.name for offer, _ in resolve_apis(selected, installed)] == ["messages", "files"]
    said = Config(server=ServerConfig(apis=[]), models={"m": ModelConfig()}, tools={"files": {}})
    assert resolve_apis(said, installed) == []


@pytest.mark.parametrize(
    ("routes", "tables", "sentence"),
    [
        (["tow"], {}, "server.apis[0]: no loaded plugin offers an api named 'tow'; did you mean \"two\"? Installed: one, two."),
        (["one", "one"], {}, "server.apis[1]: 'one' is named twice; keep one of them."),
        ([], {"tow": {}}, "apis.tow: no loaded plugin offers an api named 'tow'; did you mean \"two\"? Installed: one, two."),
        (["one"], {"one": {"greting": "x"}}, "apis.one.greting: there is no such key; did you mean \"greeting\"?"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(routes: list[str], tables: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_apis(config(routes, **tables), loaded(ApiPlugin(one=Api(), two=Api())))
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("routes", "sentence"),
    [
        ([route("/v1/responses", "POST")], "The API 'one' offers POST /v1/responses, and so does the gateway itself"),
        ([route("/v1/models/{name:str}")], "and so does the gateway itself"),
        ([route("/v1/responses/{other:str}")], "and so does the gateway itself"),
        ([route("/x"), route("/x")], "The API 'one' offers GET /x, and so does the API 'one'"),
        ([route("/x"), route("/x", "POST")], None),
        ([route("x")], "offers the path 'x', which is none"),
        ([route("/{x}")], "which is none: it begins with '/', and its parameters are {name:str} or {name:path}."),
        ([route("/{x:int}")], "which is none"),
        ([route("/x", header="x-mine")], "which is for paths that the gateway itself has"),
        ([route("/v1/models", header="X-Mine")], "write it in lower case"),
    ],
)  # fmt: skip
def test_a_route_where_none_can_be_stops_the_start(
    gateway_server: StartGateway, routes: list[Route], sentence: str | None
) -> None:
    if sentence is None:
        start(gateway_server, ApiPlugin(one=Api(*routes)))
        return
    with pytest.raises(ConfigurationError) as caught:
        start(gateway_server, ApiPlugin(one=Api(*routes)))
    assert sentence in str(caught.value)


def test_two_apis_on_one_path_stop_the_start(gateway_server: StartGateway) -> None:
    one, two = ApiPlugin(one=Api(route("/x/{a:str}"))), ApiPlugin(two=Api(route("/x/{b:path}")))
    with pytest.raises(ConfigurationError, match=r"API 'two' offers .* so does the API 'one'"):
        start(gateway_server, one, two)


def test_a_request_tells_all_that_a_route_may_want(gateway_server: StartGateway) -> None:
    gateway = start(gateway_server, ApiPlugin(one=Api(route("/a/{b:str}/c/{d:path}", handle=tell))))
    root = gateway.base_url.removesuffix("/v1")
    headers = {"X-Mine": "m", "x-request-id": "r1"}
    answer = httpx.get(f"{root}/a/é b/c/d/e?f=g", headers=headers)
    expected = ["r1", None, "m", {"f": "g"}, {"b": "é b", "d": "d/e"}]
    assert (answer.status_code, answer.text) == (201, repr(expected))
    assert (answer.headers["x-yours"], answer.headers["x-request-id"]) == ("1", "r1")


def test_errors_are_told_in_the_apis_own_form_below_its_paths_alone(
    gateway_server: StartGateway,
) -> None:
    api = Api(route("/x", handle=break_down), route("/y", handle=fail))
    gateway = start(gateway_server, ApiPlugin(one=api))
    root = gateway.base_url.removesuffix("/v1")
    expected = {
        "/x": (500, "r1: The server had an internal error on this request."),
        "/y": (500, "r1: It broke."),
        "/x/below": (404, "r1: Invalid URL (GET /x/below)."),
    }
    for path, (status, body) in expected.items():
        answer = httpx.get(root + path, headers={"x-request-id": "r1"})
        assert (answer.status_code, answer.text) == (status, body)
        assert answer.headers["x-front"] == "yes"
    for path in ("/xx", "/", "/v1/x"):
        assert httpx.get(root + path).json()["error"]["code"] == "unknown_url"


def test_a_api_reads_a_body_of_any_type_within_its_limit(gateway_server: StartGateway) -> None:
    gateway = start(gateway_server, ApiPlugin(one=Api(route("/v1/size", "POST", measure))))
    with httpx.Client(base_url=gateway.base_url, headers={"content-type": "image/png"}) as client:
        assert client.post("/size", content=b"x" * 1000).text == "1000"
        assert client.post("/size", content=b"").text == "0"
        assert client.post("/size", content=b"x" * 1001).status_code == 413
        assert client.post("/size", content=iter([b"x" * 600] * 2)).status_code == 413, "in chunks"
        packed = client.post("/size", content=b"x", headers={"content-encoding": "gzip"})
        assert packed.status_code == 415


def test_a_header_tells_a_api_from_the_gateway_on_a_path_of_both(
    gateway_server: StartGateway,
) -> None:
    api = Api(
        route("/v1/models", header="x-mine"),
        route("/v1/models/{name:path}", header="x-mine", handle=fail),
    )
    root = start(gateway_server, ApiPlugin(one=api)).base_url
    mine = {"x-mine": ""}
    assert httpx.get(f"{root}/models", headers=mine).text == "front"
    assert httpx.get(f"{root}/models").json()["object"] == "list"
    assert httpx.get(f"{root}/models/m", headers=mine).headers["x-front"] == "yes"
    assert httpx.get(f"{root}/models/m").json()["id"] == "m"


def test_a_api_that_is_not_named_is_not_served(gateway_server: StartGateway) -> None:
    gateway = start(gateway_server, ApiPlugin(one=Api(route("/x"))), routes=[])
    root = gateway.base_url.removesuffix("/v1")
    assert httpx.get(f"{root}/x").status_code == 404
    assert httpx.post(f"{root}/v1/messages", json={}).json()["error"]["code"] == "unknown_url"


def test_an_app_for_any_server_has_the_apis_too() -> None:
    plugins = load_plugins(extra=[ApiPlugin(one=Api(route("/x")))])
    made = Config(server=ServerConfig(apis=["one"]), models={"m": ModelConfig(engine="scripted")})
    with TestClient(create_app(made, plugins), base_url="http://127.0.0.1") as client:
        assert client.get("/x").text == "front"
