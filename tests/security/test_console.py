"""The console: what a page on which anything can be written must not do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.access import hash_key
from gateway.base.errors import ConfigurationError, GatewayError, NotFound
from gateway.plugins.hookspecs import hookimpl
from gateway.plugins.protocols import NoConfig, Reply, Route
from gateway_console.api import KEPT_RUNS, ConsoleApi
from gateway_console.files import VENDOR, read_files
from gateway_testing.server import run_gateway

BROWSER = {"accept": "text/html"}
MODELS: dict[str, Any] = {"m": {"engine": "scripted"}}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway with keys."""
    server = {"api_keys": [{"name": "ada", "sha256": hash_key("key-ada")}]}
    with run_gateway(
        {"models": MODELS, "server": server}, tmp_path_factory.mktemp("console")
    ) as running:
        yield running.base_url.removesuffix("/v1")


def paths() -> list[str]:
    return ["/", *(f"/console/{name}" for name in read_files() if name != "index.html")]


@pytest.mark.parametrize("path", paths())
def test_each_file_has_a_strict_policy(keyed: str, path: str) -> None:
    answer = httpx.get(keyed + path, headers=BROWSER)
    assert answer.status_code == 200
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["frame-ancestors"] == policy["trusted-types"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["font-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"


def test_nothing_interprets_strings_as_markup_or_code() -> None:
    forbidden = (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment",
        "setHTMLUnsafe", "srcdoc", "eval(", "new Function", "importScripts", "style=",
    )  # fmt: skip
    for name, file in read_files().items():
        if name.startswith(VENDOR):
            continue  # see below
        text = file.content.decode()
        for word in forbidden:
            assert word not in text, (name, word)


def test_what_libraries_could_interpret_as_markup_is_known() -> None:
    """Browsers refuse all of it (`trusted-types 'none'`), and none of it is called by the page: highlight.js has
    `highlightElement`, and KaTeX makes texts with `style=` for pages that are made by a server."""
    sinks = (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment",
        "setHTMLUnsafe", "srcdoc", "eval(", "new Function", "importScripts", "style=",
    )  # fmt: skip
    found = {
        (name.rpartition("/")[2], word)
        for name, file in read_files().items()
        if name.startswith(VENDOR) and not name.endswith(".woff2")
        for word in sinks
        if word in file.content.decode()
    }
    assert found == {("highlight.min.js", "innerHTML"), ("katex.min.js", "style=")}
    own = "".join(
        file.content.decode()
        for name, file in read_files().items()
        if name.endswith(".js") and not name.startswith(VENDOR)
    )
    for call in ("highlightElement", "highlightAll", "renderToString", ".renderer"):
        assert call not in own


def test_the_page_has_no_inline_script_or_style() -> None:
    page = read_files()["index.html"].content.decode()
    assert "<style" not in page
    assert page.count("<script") == page.count('<script type="module" src="console/')
    assert " on" not in page.replace(" content", "")


@pytest.mark.parametrize("path", ["/", "/console/main.js"])
def test_only_the_files_are_open_without_a_key(keyed: str, path: str) -> None:
    assert httpx.get(keyed + path, headers=BROWSER).status_code == 200
    for other in ("/v1/models", "/console", "/console/", "/console/other.js", "/console/../v1/models", "//v1/models", "/%76%31/models"):  # fmt: skip
        answer = httpx.get(keyed + other, headers=BROWSER)
        assert answer.status_code in (401, 404), other
        assert "data" not in answer.json()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_the_page_takes_nothing(keyed: str, method: str) -> None:
    for path in ("/", "/console/main.js"):
        headers = {**BROWSER, "content-type": "application/json", "authorization": "Bearer key-ada"}
        answer = httpx.request(method, keyed + path, content=b"{}", headers=headers)
        assert answer.status_code in (404, 405)


def test_every_route_of_the_console_only_reads() -> None:
    for route in ConsoleApi(read_files()).routes:
        assert (route.method, route.public) == ("GET", True)
        assert "{" not in route.path


@pytest.mark.parametrize(
    "query",
    ["?q=<script>alert(1)</script>", "?next=javascript:alert(1)", "?model=%22%3E%3Cimg%20src=x%3E"],
)
def test_nothing_of_the_address_is_reflected(keyed: str, query: str) -> None:
    plain = httpx.get(keyed, headers=BROWSER)
    answer = httpx.get(f"{keyed}/{query}", headers=BROWSER)
    assert answer.content == plain.content
    missing = httpx.get(f"{keyed}/console/<img src=x>", headers={"authorization": "Bearer key-ada"})
    assert missing.headers["content-type"].startswith("application/json")


def test_a_key_that_is_sent_with_a_public_route_gives_no_owner(tmp_path: Path) -> None:
    seen: list[str | None] = []

    class Open:
        def __init__(self, routes: list[Route]) -> None:
            self.routes = routes

        def error(self, error: GatewayError, request_id: str) -> Reply:
            return Reply.error(error)

    async def handle(request: Any) -> Reply:
        seen.append(request.owner)
        return Reply(body=b"{}")

    async def missing(request: Any) -> Reply:
        raise NotFound("no")

    def plugin(*routes: Route) -> Any:
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def open_api(config: NoConfig) -> Any:
            yield Open(list(routes))

        class Plugin:
            @hookimpl
            def gateway_register_apis(self, register: Any) -> None:
                register("open", open_api)

        return Plugin()

    config = {
        "models": MODELS,
        "server": {"apis": ["open"], "api_keys": [{"name": "ada", "sha256": hash_key("key-ada")}]},
    }
    public = Route(method="GET", path="/open", handle=handle, public=True)
    with run_gateway(config, tmp_path, plugins=[plugin(public)]) as running:
        url = running.base_url.removesuffix("/v1") + "/open"
        assert httpx.get(url).status_code == 200
        assert httpx.get(url, headers={"authorization": "Bearer key-ada"}).status_code == 200
    assert seen == [None, None]
    for bad in (
        [Route(method="POST", path="/open", handle=handle, public=True)],
        [Route(method="GET", path="/open/{name:path}", handle=handle, public=True)],
        [public, Route(method="POST", path="/open", handle=missing)],
    ):
        with (
            pytest.raises(ConfigurationError, match="cannot be public"),
            run_gateway(config, tmp_path, plugins=[plugin(*bad)]),
        ):
            pass


def test_the_documents_of_the_page_are_not_json_of_the_api(keyed: str) -> None:
    answer = httpx.get(keyed, headers={"accept": "application/json, text/plain, */*"})
    assert answer.status_code == 404
    json.loads(answer.content)


def test_the_description_of_the_api_needs_a_key_and_names_nothing_of_the_configuration(
    keyed: str,
) -> None:
    assert httpx.get(f"{keyed}/openapi.json").status_code == 401
    answer = httpx.get(f"{keyed}/openapi.json", headers={"authorization": "Bearer key-ada"})
    assert answer.headers["content-type"] == "application/json"
    described = answer.json()
    assert hash_key("key-ada") not in answer.text
    assert '"m"' not in answer.text
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert method in ("get", "post", "put", "patch", "delete")
            if path not in ("/health", "/ready", "/metrics"):
                assert operation["security"] == [{"bearer": []}], path


def test_what_the_gateway_consists_of_is_for_administrators(tmp_path: Path) -> None:
    keys = [
        {"name": name, "sha256": hash_key(f"key-{name}"), "admin": name == "root"}
        for name in ("ada", "root")
    ]
    config = {"models": MODELS, "server": {"api_keys": keys}, "resources": {"files": {}}}
    with run_gateway(config, tmp_path) as running:
        url = f"{running.base_url}/gateway"
        assert httpx.get(url).status_code == 401
        refused = httpx.get(url, headers={"authorization": "Bearer key-ada"})
        assert refused.status_code == 403
        assert "admin" in refused.json()["error"]["message"]
        answer = httpx.get(url, headers={"authorization": "Bearer key-root"})
        states = {(each["kind"], each["name"]): each["state"] for each in answer.json()["plugins"]}
        assert states["api", "console"] == states["engine", "scripted"] == "selected"
        for secret in ("key-ada", hash_key("key-ada"), str(tmp_path)):
            assert secret not in answer.text


def test_requests_of_others_are_for_administrators_and_have_no_texts(tmp_path: Path) -> None:
    keys = [
        {"name": name, "sha256": hash_key(f"key-{name}"), "admin": name == "root"}
        for name in ("ada", "root")
    ]
    config = {"models": MODELS, "server": {"api_keys": keys}}
    ada, root = ({"authorization": f"Bearer key-{name}"} for name in ("ada", "root"))
    with run_gateway(config, tmp_path) as running:
        url = f"{running.base_url}/gateway/runs"
        body = {
            "model": "m", "instructions": "secret instructions", "input": "secret question",
            "metadata": {"note": "secret note"}, "user": "secret user",
        }  # fmt: skip
        for headers in (ada, {**ada, "x-request-id": "<script>alert(1)</script>"}):
            made = httpx.post(
                f"{running.base_url}/responses", json=body, headers=headers, timeout=60
            )
            assert made.status_code == 200
        assert httpx.get(url).status_code == 401
        refused = httpx.get(url, headers=ada)
        assert refused.status_code == 403
        assert "admin" in refused.json()["error"]["message"]
        assert made.json()["id"] not in refused.text
        answer = httpx.get(url, headers=root)
        assert [each["key"] for each in answer.json()["ended"]] == ["ada", "ada"]
        for secret in ("secret", "key-ada", hash_key("key-ada"), "script>"):
            assert secret not in answer.text
        for method in ("POST", "PUT", "DELETE"):
            assert httpx.request(method, url, headers=root).status_code == 405
        cancel = f"{url}/{answer.json()['ended'][0]['id']}/cancel"
        assert httpx.post(cancel).status_code == 401
        assert httpx.post(cancel, headers=ada).status_code == 403
        assert httpx.post(cancel, headers=root).status_code == 404
        assert httpx.get(cancel, headers=root).status_code == 405


def test_other_pages_cancel_nothing(tmp_path: Path) -> None:
    """Without keys, a page of another origin could send what the administrator's browser may."""
    with run_gateway({"models": MODELS}, tmp_path) as running:
        url = f"{running.base_url}/gateway/runs/run_x_1/cancel"
        for headers in (
            {"origin": "https://attacker.example"},
            {"sec-fetch-site": "cross-site"},
            {"origin": "null", "content-type": "text/plain"},
        ):
            assert httpx.post(url, headers=headers).status_code == 403
        assert httpx.post(url).status_code == 404


def test_runs_that_have_ended_are_bounded(tmp_path: Path) -> None:
    with run_gateway({"models": MODELS}, tmp_path) as running:
        history = running.services.run_history
        assert history is not None
        assert history.most == KEPT_RUNS <= 1000
