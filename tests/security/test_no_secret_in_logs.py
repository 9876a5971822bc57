"""No key, token or password gets into the log, at any level, whatever fails."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from cryptography.fernet import Fernet
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import connect

from gateway.access.access import hash_key
from gateway.config import load_config
from gateway.config.redaction import Redactor, secrets_of
from gateway.process.logs import RedactingFormatter
from gateway_testing.free_ports import free_port
from gateway_testing.server import to_toml


def canary(name: str) -> str:
    """A secret that is recognized wherever it turns up."""
    return f"canary-{name}-7f3a9c51e2"


KEY, WRONG, ALT, COOKIE, QUERY = map(canary, ("key", "wrong", "alt", "cookie", "query"))
MCP_TOKEN, MCP_HEADER, MCP_CONFIGURED, MCP_ENV = map(canary, ("mcp", "mcphead", "mcpconf", "mcpenv"))  # fmt: skip
UPSTREAM, UPSTREAM_HEADER, UPSTREAM_ENV = map(canary, ("up", "uphead", "upenv"))
BROWSER, REDIS, MESSAGE = map(canary, ("brave", "redis", "message"))
SEAL = Fernet.generate_key().decode()
SECRETS = [
    KEY, WRONG, ALT, COOKIE, QUERY, MCP_TOKEN, MCP_HEADER, MCP_CONFIGURED, MCP_ENV, UPSTREAM, UPSTREAM_HEADER, UPSTREAM_ENV,
    BROWSER, REDIS, MESSAGE, SEAL,
]  # fmt: skip


def forms(secret: str) -> set[str]:
    """A secret as it may be written."""
    found = {secret, secret.encode().hex(), quote(secret, safe=""), secret[::-1]}
    for before in ("", "x", "xx", "Bearer ", ":", "user:"):
        coded = base64.b64encode((before + secret).encode()).decode().rstrip("=")
        found |= {coded[4:-4], base64.urlsafe_b64encode((before + secret).encode()).decode()[4:-4]}
    return found


def leaked(text: str) -> list[str]:
    return [secret for secret in SECRETS if any(form in text for form in forms(secret))]


class Upstream(BaseHTTPRequestHandler):
    """Answers with the failure that the path names, and repeats all headers that it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.endswith("/models"):
            self._answer(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
        else:
            self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = str(self.headers.items())
        kind = self.path.strip("/").split("/")[0]
        if kind == "drop":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif kind == "garbage":
            self._answer(200, headers)
        else:
            self._answer(
                int(kind),
                {"error": {"message": headers, "type": headers, "code": headers}},
            )

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name that the library has
        pass


FAILURES = ("401", "403", "429", "500", "drop", "garbage")


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class Server:
    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


@contextlib.contextmanager
def serving(
    config: dict[str, Any], folder: Path, *, fails: bool = False, **environ: str
) -> Iterator[Server]:
    """`gateway serve` at the level `debug`; where it `fails`, until it has ended."""
    port = free_port()
    config = {**config, "server": {**config.get("server", {}), "port": port, "access_log": True}}
    (folder / "gateway.toml").write_text(to_toml(config))
    own = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(folder / "gateway.toml"), "--log-level", "debug"],
            stdout=log, stderr=log, env={**own, **environ},
        )  # fmt: skip
    server = Server(process, f"http://127.0.0.1:{port}", folder / "log")
    try:
        give_up = time.monotonic() + 120
        while process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{server.url}/health").status_code == 200:
                    break
            assert time.monotonic() < give_up, server.log
            time.sleep(0.1)
        assert (process.poll() is not None) == fails, server.log
        yield server
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def server(upstream: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for plugin in ("gateway_mcp", "gateway_browser", "gateway_openai"):
        pytest.importorskip(plugin)
    search = [
        {
            "when": "search",
            "pieces": [{"call": {"name": "web_search", "arguments": {"query": "x"}}}],
        }
    ]
    models: dict[str, Any] = {
        "m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": search}},
    }
    for number, kind in enumerate(FAILURES):
        key = {"api_key_env": "UPSTREAM_KEY"} if number % 2 else {"api_key": UPSTREAM}
        models[f"up-{kind}"] = {
            "engine": "openai",
            "openai": {
                "base_url": f"{upstream}/{kind}", "api": "chat", "model": "m", "wait_for_replica": 0.1,
                "headers": {"x-upstream": UPSTREAM_HEADER}, **key,
            },
        }  # fmt: skip
    config = {
        "server": {
            "api_keys": [{"name": "ada", "sha256": hash_key(KEY)}],
            "reasoning_keys": [SEAL],
            "allowed_hosts": ["*"],
        },
        "models": models,
        "tools": {
            "browser": {
                "provider": "brave",
                "allow_private": True,
                "brave": {"api_key": BROWSER, "url": f"{upstream}/500"},
            },
            "mcp": {
                "servers": {
                    "away": {"url": f"{upstream}/401/mcp", "headers": {"authorization": f"Bearer {MCP_CONFIGURED}"}},
                    "child": {"command": [sys.executable, "-c", "raise SystemExit('no')"], "env": {"TOKEN": MCP_ENV}},
                },
                "remote": {"enabled": True, "allow_private": True, "allow_hosts": ["*"], "connect_timeout": 2.0},
            },
        },
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("secrets")
    with serving(config, folder, UPSTREAM_KEY=UPSTREAM_ENV) as running:
        yield running


def ask(server: Server, body: dict[str, Any], **headers: str) -> httpx.Response:
    sent = {"authorization": f"Bearer {KEY}", **headers}
    body = {"model": "m", "input": "hello", **body}
    return httpx.post(f"{server.url}/v1/responses", json=body, headers=sent, timeout=120)


def check(server: Server, *answers: httpx.Response) -> None:
    time.sleep(0.2)
    assert "DEBUG" in server.log or "INFO" in server.log
    assert leaked(server.log) == []
    for answer in answers:
        assert not set(leaked(answer.text)) - {KEY}


def test_keys_of_clients_are_not_logged(server: Server) -> None:
    credentials: list[dict[str, str]] = [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"Bearer {WRONG}"},
        {"authorization": f"Basic {base64.b64encode(f'user:{WRONG}'.encode()).decode()}"},
        {"authorization": WRONG},
        {"x-api-key": ALT},
        {"api-key": ALT},
        {"cookie": f"session={COOKIE}"},
        {"proxy-authorization": f"Bearer {ALT}"},
    ]
    for sent in credentials:
        for path in ("/v1/models", "/v1/nothing", f"/v1/models?api_key={QUERY}&token={QUERY}"):
            httpx.get(server.url + path, headers=sent)
            httpx.post(server.url + path, headers=sent, content=b"{", timeout=60)
    check(server)


def test_keys_and_messages_of_websockets_are_not_logged(server: Server) -> None:
    url = server.url.replace("http", "ws") + "/v1/responses"
    for sent in ({"authorization": f"Bearer {WRONG}"}, {"x-api-key": ALT}, {"x-long": "a" * 20_000, "cookie": COOKIE}):  # fmt: skip
        with pytest.raises((InvalidStatus, WebSocketException)):
            connect(url, additional_headers={"authorization": f"Bearer {WRONG}", **sent})
    headers = {"authorization": f"Bearer {KEY}", "cookie": f"session={COOKIE}"}
    with connect(url + f"?api_key={QUERY}", additional_headers=headers) as opened:
        tool = {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:9/", "authorization": MCP_TOKEN}  # fmt: skip
        opened.send(json.dumps({"type": "response.create", "model": "m", "input": MESSAGE}))
        opened.send(json.dumps({"type": "response.create", "model": "m", "input": "x", "tools": [tool]}))  # fmt: skip
        opened.send(f'{{"authorization": "{MCP_TOKEN}"')
        ends = 0
        while ends < 3:
            ends += json.loads(opened.recv(60))["type"] in ("response.completed", "response.failed", "error")  # fmt: skip
    check(server)


def test_raw_bytes_of_a_bad_request_are_not_logged(server: Server) -> None:
    parts = urlsplit(server.url)
    for said in (
        b"GET / HTTP/1.1\r\nauthorization: Bearer %b\r\nbad header\r\n\r\n",
        b"GET /%b HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\x00\r\n\r\n",
        b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"authorization: Bearer %b\r\nsec-websocket-key: %b\r\n\r\n",
    ):
        with socket.create_connection((parts.hostname, parts.port), timeout=60) as sock:
            sock.sendall(said.replace(b"%b", WRONG.encode()))
            assert sock.recv(65536)
    check(server)


@pytest.mark.parametrize("kind", [*FAILURES, "away"])
def test_credentials_for_mcp_servers_are_not_logged(
    server: Server, upstream: str, kind: str
) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp" if kind == "away" else f"{upstream}/{kind}/mcp"
    answers = []
    for more in (
        {"authorization": MCP_TOKEN},
        {"headers": {"X-Custom": MCP_HEADER, "Authorization": f"Bearer {MCP_TOKEN}"}},
        {"authorization": f"{MCP_TOKEN}\n"},
        {"headers": {"X-Custom": f"{MCP_HEADER}\u00e9\u2028"}},
    ):
        tool = {"type": "mcp", "server_label": "x", "server_url": url, "require_approval": "never", **more}  # fmt: skip
        answers.append(ask(server, {"tools": [tool]}))
        answers.append(ask(server, {"tools": [tool], "background": True}))
    check(server, *answers)


def test_credentials_of_configured_tools_are_not_logged(server: Server) -> None:
    answers = [
        ask(
            server, {"tools": [{"type": "mcp", "server_label": label, "require_approval": "never"}]}
        )
        for label in ("away", "child")
    ]
    answers.append(ask(server, {"input": "search", "tools": [{"type": "web_search"}]}))
    check(server, *answers)


@pytest.mark.parametrize("kind", FAILURES)
def test_keys_of_upstreams_are_not_logged(server: Server, kind: str) -> None:
    answers = [
        ask(server, {"model": f"up-{kind}"}),
        httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"model": f"up-{kind}", "messages": [{"role": "user", "content": "hello"}]},
            headers={"authorization": f"Bearer {KEY}"},
            timeout=120,
        ),
    ]
    check(server, *answers)


@pytest.mark.parametrize(
    "table",
    [
        {"url": f"redis://user:{REDIS}@127.0.0.1:{{port}}/0"},
        {"url": "redis://127.0.0.1:{port}/0", "password": REDIS},
        {"url": f"redis://:{REDIS}@[bad/0"},
        {"url": f"unix://:{REDIS}@/nowhere.sock"},
        {"url": f"redis+sentinel://:{REDIS}@127.0.0.1:{{port}}/service"},
        {"url": f"redis://:{REDIS}@127.0.0.1:{{port}}/0?nonsense=1"},
    ],
    ids=lambda table: table["url"].replace(REDIS, "…"),
)
@pytest.mark.slow
def test_the_password_of_a_store_is_not_told_when_it_is_away(
    table: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("gateway_redis")
    table = {**table, "url": table["url"].replace("{port}", str(free_port()))}
    config = {
        "server": {"store": "redis"},
        "stores": {"redis": table},
        "models": {"m": {"engine": "scripted"}},
    }
    with serving(config, tmp_path, fails=True) as server:
        assert server.log
        assert leaked(server.log) == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("authorization: Bearer abc.def", "authorization: "),
        ("{'authorization': 'abc.def', 'x': 1}", "'x': 1}"),
        ("[(b'authorization', b'Bearer abc.def')]", "authorization"),
        ("headers={'x-api-key': 'abc.def'}", "x-api-key"),
        ("redis://user:abc.def@host:1/0 is away", "@host:1/0 is away"),
        ("Illegal header value b'abc.def\\n'", "Illegal header value"),
        ("GET /v1/x?api_key=abc.def&limit=3", "&limit=3"),
        ("it is configured-abc.def here", " here"),
        ("it is configured%2Dabc.def here", " here"),
    ],
)
def test_what_looks_like_a_credential_is_hidden(text: str, kept: str) -> None:
    cleaned = Redactor(["configured-abc.def", "configured%2Dabc.def"]).clean(text)
    assert "abc.def" not in cleaned
    assert kept in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "The store 'redis' cannot be reached at redis://127.0.0.1:6379/0.",
        "tools.browser.brave.api_key: expected a string",
        "check api_key and headers",
        "max_tokens: 5, token limit: 6",
        "https://example.org/@name",
    ],
)
def test_what_is_none_is_kept(text: str) -> None:
    assert Redactor().clean(text) == text


def test_tracebacks_are_cleaned_too(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        f'[tools.browser.brave]\napi_key = "{BROWSER}"\n[stores.redis]\nurl = "redis://:{REDIS}@h"\n'
        f'[tools.mcp.servers.x]\nheaders = {{ any = "{MCP_HEADER}" }}\nenv = {{ A = "{MCP_ENV}" }}\n'
        f'[models.m.openai]\napi_key_env = "UP"\n[server]\nreasoning_keys = ["{SEAL}"]\n'
        f'[[server.api_keys]]\nname = "a-known-name"\nsha256 = "{hash_key(KEY)}"\n'
    )
    secrets = secrets_of(load_config(file, {}), {"UP": UPSTREAM_ENV})
    assert secrets >= {BROWSER, REDIS, MCP_HEADER, MCP_ENV, UPSTREAM_ENV, SEAL}
    assert not secrets & {"a-known-name", hash_key(KEY)}
    formatter = RedactingFormatter(Redactor(secrets))
    try:
        raise ValueError(  # noqa: TRY301  # its traceback is what is tested
            f"{BROWSER} {REDIS} {MCP_HEADER} {MCP_ENV} {UPSTREAM_ENV} {SEAL}"
        )
    except ValueError:
        record = logging.LogRecord("x", 40, "x", 1, "it failed", None, sys.exc_info())
    text = formatter.format(record)
    assert "Traceback" in text
    assert leaked(text) == []
