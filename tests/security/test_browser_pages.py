"""A web page in a browser on this machine cannot use a server that has no API keys."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gateway.access.access import hash_key
from gateway.base.errors import ConfigurationError
from gateway.config import load_config
from gateway_testing.server import RunningGateway, run_gateway

OWN, EVIL = "https://own.example", "https://evil.example"
BODY = {"model": "m", "input": "hello"}
JSON = {"content-type": "application/json"}
CONFIG: dict[str, Any] = {
    "models": {"m": {"engine": "scripted"}},
    "tools": {"file_search": {}},
}


def serving(tmp_path_factory: pytest.TempPathFactory, **server: Any) -> Any:
    pytest.importorskip("gateway_file_search")
    return run_gateway({**CONFIG, "server": server}, tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with serving(tmp_path_factory, cors_allow_origins=[OWN]) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = [{"name": "ada", "sha256": hash_key("ada-key")}]
    with serving(tmp_path_factory, api_keys=keys, cors_allow_origins=[OWN]) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    hosts = ["gateway.example", "*.inner.example", "10.1.0.0/16"]
    with serving(tmp_path_factory, allowed_hosts=hosts) as gateway:
        yield gateway


def ask(gateway: RunningGateway, method: str, path: str, **options: Any) -> httpx.Response:
    root = gateway.base_url.removesuffix("/v1")
    return httpx.request(method, root + path, timeout=30, **options)


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code, of an answer in OpenAI's envelope."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    return answer.status_code, error["code"]


def host_of(gateway: RunningGateway) -> str:
    return urlsplit(gateway.base_url).netloc


@contextmanager
def socket_to(
    gateway: RunningGateway, path: str = "/responses", *, host: str | None = None, **options: Any
) -> Iterator[Any]:
    """A connection whose handshake names `host`."""
    parts = urlsplit(gateway.base_url)
    with (
        socket.create_connection((parts.hostname, parts.port), timeout=20) as sock,
        connect(f"ws://{host or parts.netloc}/v1{path}", sock=sock, **options) as made,
    ):
        yield made


REBOUND = [
    "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "localhost@evil.example",
    "localhost:80:80", "localhost:x", "10.0.0.1", "0.0.0.0", "[::2]", "[::1", "169.254.169.254", "", "localhost/", "2130706433",
    "127.0.0.1\u00e9",
]  # fmt: skip
LOCAL = [
    "localhost", "localhost:8000", "LocalHost:1", "127.0.0.1", "127.0.0.1:8000", "127.8.9.10:1", "[::1]", "[::1]:8000",
]  # fmt: skip


@pytest.mark.parametrize("host", REBOUND)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/nothing"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/messages"),
        ("DELETE", "/v1/responses/resp_1"),
    ],
)
def test_a_host_that_is_not_this_machine_is_refused(
    keyless: RunningGateway, method: str, path: str, host: str
) -> None:
    answer = ask(keyless, method, path, headers={"host": host.encode("latin-1"), **JSON})
    assert answer.status_code == 403
    assert "allowed_hosts" in answer.json()["error"]["message"]
    if path != "/v1/messages":  # this one is told in Anthropic's form
        assert error_of(answer) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", LOCAL)
def test_the_names_of_this_machine_are_allowed(keyless: RunningGateway, host: str) -> None:
    assert ask(keyless, "GET", "/v1/models", headers={"host": host}).status_code == 200
    assert ask(keyless, "POST", "/v1/responses", json=BODY, headers={"host": host}).is_success


def test_probes_answer_to_any_host(keyless: RunningGateway) -> None:
    for path in ("/health", "/ready"):
        assert ask(keyless, "GET", path, headers={"host": "10.0.0.7:8000"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("gateway.example", True), ("GATEWAY.example:443", True), ("a.inner.example", True), ("a.b.inner.example", True),
        ("10.1.2.3:8000", True), ("localhost:8000", True), ("127.0.0.1", True), ("[::1]:80", True),
        ("inner.example", False), ("evil-inner.example", False), ("gateway.example.evil", False), ("10.2.0.1", False),
    ],
)  # fmt: skip
def test_further_hosts_are_allowed_by_configuration(
    listed: RunningGateway, host: str, allowed: bool
) -> None:
    answer = ask(listed, "GET", "/v1/models", headers={"host": host})
    assert answer.status_code == (200 if allowed else 403)


def test_with_keys_any_host_is_allowed_until_there_is_a_list(
    guarded: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> None:
    headers = {"host": "gateway.example", "authorization": "Bearer ada-key"}
    assert ask(guarded, "GET", "/v1/models", headers=headers).status_code == 200
    keys = [{"name": "ada", "sha256": hash_key("ada-key")}]
    with serving(tmp_path_factory, api_keys=keys, allowed_hosts=["one.example"]) as gateway:
        assert error_of(ask(gateway, "GET", "/v1/models", headers=headers)) == (403, "host_not_allowed")  # fmt: skip
        headers["host"] = "one.example"
        assert ask(gateway, "GET", "/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["http://x", "x:80", "a b", "", "10.0.0.1/8", "*x", "x/", "*.*"])
def test_what_is_no_host_stops_the_start(tmp_path: Any, host: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f"[server]\nallowed_hosts = [{json.dumps(host)}]\n")
    with pytest.raises(ConfigurationError, match="is not a host"):
        load_config(file, {})


FOREIGN: list[dict[str, str]] = [
    {"origin": EVIL},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"origin": "file://"},
    {"origin": ""},
    {"origin": f"{OWN}.evil.example"},
    {"origin": OWN.replace(".", "x")},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]


@pytest.mark.parametrize("sent", FOREIGN, ids=lambda sent: next(iter(sent.values())) or "empty")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/responses"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/conversations"),
        ("POST", "/v1/nothing"),
        ("OPTIONS", "/v1/responses"),
        ("PUT", "/v1/models"),
    ],
)
def test_a_page_of_another_origin_can_do_nothing(
    keyless: RunningGateway, method: str, path: str, sent: dict[str, str]
) -> None:
    for more in ({}, {"json": BODY}):
        answer = ask(keyless, method, path, headers=sent, **more)
        assert error_of(answer) == (403, "origin_not_allowed")
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("sent", FOREIGN, ids=lambda sent: next(iter(sent.values())) or "empty")
def test_a_page_of_another_origin_cannot_upload_a_file(
    keyless: RunningGateway, sent: dict[str, str]
) -> None:
    options: Any = {"files": {"file": ("a.txt", b"text")}, "data": {"purpose": "user_data"}}
    answer = ask(keyless, "POST", "/v1/files", headers=sent, **options)
    assert error_of(answer) == (403, "origin_not_allowed")
    assert ask(keyless, "GET", "/v1/files").json()["data"] == []
    made = ask(keyless, "POST", "/v1/files", **options).json()
    assert ask(keyless, "DELETE", f"/v1/files/{made['id']}").json()["deleted"]


def test_what_a_page_may_read_is_only_said_to_pages_that_are_allowed(
    keyless: RunningGateway,
) -> None:
    for origin, allowed in ((EVIL, None), ("null", None), (OWN, OWN)):
        answer = ask(keyless, "GET", "/v1/models", headers={"origin": origin})
        assert answer.status_code == 200, "a plain GET changes nothing"
        assert answer.headers.get("access-control-allow-origin") == allowed


def test_pages_that_are_allowed_may_do_everything(keyless: RunningGateway) -> None:
    for origin in (OWN, f"http://{host_of(keyless)}"):
        for site in ("same-origin", "cross-site"):
            headers = {"origin": origin, "sec-fetch-site": site}
            answer = ask(keyless, "POST", "/v1/responses", json=BODY, headers=headers)
            assert answer.status_code == 200
    preflight = {"origin": OWN, "access-control-request-method": "POST"}
    answer = ask(keyless, "OPTIONS", "/v1/responses", headers=preflight)
    assert answer.headers["access-control-allow-origin"] == OWN


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "text/plain;application/json", "application/x-www-form-urlencoded",
             "multipart/form-data; boundary=x", "application/jsonp", "text/plain, application/x+json", "text/json"]
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/conversations", "/v1/files"])  # fmt: skip
@pytest.mark.parametrize("server", ["keyless", "guarded"])
def test_a_body_has_the_content_type_of_its_route(
    request: pytest.FixtureRequest, server: str, path: str, kind: str | None
) -> None:
    if path == "/v1/files" and kind and kind.startswith("multipart/"):
        pytest.skip("this is the type of this route")
    headers = {"authorization": "Bearer ada-key"}
    if kind is not None:
        headers["content-type"] = kind
    answer = ask(
        request.getfixturevalue(server), "POST", path, content=json.dumps(BODY), headers=headers
    )
    assert error_of(answer) == (415, "unsupported_media_type")


@pytest.mark.parametrize("path", ["/v1/responses/resp_1/cancel", "/v1/messages", "/v1/responses/resp_1"])  # fmt: skip
def test_a_form_is_refused_whatever_the_route(keyless: RunningGateway, path: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        method = "DELETE" if path == "/v1/responses/resp_1" else "POST"
        answer = ask(keyless, method, path, content=b"x=1", headers={"content-type": kind})
        assert answer.status_code == 415


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"]
)
def test_json_by_any_of_its_names_is_read(keyless: RunningGateway, kind: str) -> None:
    answer = ask(
        keyless, "POST", "/v1/responses", content=json.dumps(BODY), headers={"content-type": kind}
    )
    assert answer.status_code == 200


def test_a_request_without_a_body_needs_no_content_type(keyless: RunningGateway) -> None:
    made = ask(keyless, "POST", "/v1/responses", json={**BODY, "background": True}).json()
    cancelled = ask(keyless, "POST", f"/v1/responses/{made['id']}/cancel")
    assert cancelled.status_code == 200
    assert ask(keyless, "POST", "/v1/conversations").status_code == 200
    assert ask(keyless, "DELETE", f"/v1/responses/{made['id']}").status_code == 200


def test_curl_is_told_which_header_to_add(keyless: RunningGateway) -> None:
    command = ["curl", "-s", f"{keyless.base_url}/responses", "-d", json.dumps(BODY)]
    refused = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert "-H 'content-type: application/json'" in refused["error"]["message"]
    command += ["-H", "content-type: application/json"]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert answer["status"] == "completed"


@pytest.mark.parametrize(
    ("origin", "host", "code"),
    [
        (EVIL, None, "origin_not_allowed"),
        ("null", None, "origin_not_allowed"),
        ("http://localhost:3000", None, "origin_not_allowed"),
        ("http://evil.example", "evil.example", "host_not_allowed"),
        (None, "evil.example", "host_not_allowed"),
        (OWN, "evil.example", "host_not_allowed"),
    ],
)
@pytest.mark.parametrize("path", ["/responses", "/nothing"])
def test_a_page_cannot_open_a_websocket(
    keyless: RunningGateway, origin: str | None, host: str | None, code: str, path: str
) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        socket_to(keyless, path, host=host, origin=origin),
    ):
        pass
    response = refused.value.response
    assert response.status_code == 403
    assert json.loads(response.body)["error"]["code"] == code


def test_who_is_no_page_of_another_origin_opens_a_websocket(keyless: RunningGateway) -> None:
    for origin in (None, OWN, f"http://{host_of(keyless)}"):
        with socket_to(keyless, origin=origin) as opened:
            opened.send(json.dumps({"type": "response.create", **BODY}))
            assert json.loads(opened.recv(20))["type"] == "response.created"


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer no"}, {"x-api-key": "no"}])
def test_a_websocket_without_a_key_is_refused_before_it_is_accepted(
    guarded: RunningGateway, headers: dict[str, str]
) -> None:
    for options in ({}, {"subprotocols": ["realtime", "openai-insecure-api-key.ada-key"]}):
        with (
            pytest.raises(InvalidStatus) as refused,
            socket_to(guarded, additional_headers=headers, **options),
        ):
            pass
        assert refused.value.response.status_code == 401
        assert json.loads(refused.value.response.body)["error"]["code"] == "invalid_api_key"
