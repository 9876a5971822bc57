"""What comes over the socket and is no proper request: answered in OpenAI's envelope, and never without a limit."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from gateway.http.connections.http_protocol import MAX_HEAD
from gateway_testing.grammar import fold, parse_sse


@pytest.fixture
def talk(server: Any) -> Any:
    parts = urlsplit(server.url)

    def say(*pieces: bytes) -> tuple[int, dict[str, str], Any]:
        """The first answer to what these pieces say: status, headers, body."""
        with socket.create_connection((parts.hostname, parts.port), timeout=60) as sock:
            for piece in pieces:
                try:
                    sock.sendall(piece)
                except (ConnectionResetError, BrokenPipeError):
                    break
            file = sock.makefile("rb")
            status = int(file.readline().split()[1])
            headers = {}
            while line := file.readline().strip():
                name, _, value = line.decode().partition(": ")
                headers[name.lower()] = value
            return status, headers, json.loads(file.read(int(headers["content-length"])))

    return say


def head(*headers: str) -> bytes:
    return "\r\n".join(("GET /v1/models HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def test_headers_as_long_as_they_may_be_are_read(talk: Any) -> None:
    status, _, body = talk(head(f"X-Long: {'a' * (MAX_HEAD - 100)}"))
    assert status == 200
    assert body["object"] == "list"


@pytest.mark.parametrize(
    "pieces",
    [
        (head(f"X-Long: {'a' * MAX_HEAD}"),),
        (head(*(f"X-{number}: {'a' * 1000}" for number in range(70))),),
        (b"GET /" + b"a" * MAX_HEAD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",),
        (
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Endless: ",
            *(b"a" * 4096 for _ in range(40)),
        ),
    ],
    ids=["one long header", "many headers", "a long path", "a header without an end"],
)
def test_a_head_that_is_too_long_is_refused(talk: Any, pieces: tuple[bytes, ...]) -> None:
    status, headers, body = talk(*pieces)
    assert status == 431
    assert headers["connection"] == "close"
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["code"] == "request_headers_too_large"
    assert str(MAX_HEAD) in body["error"]["message"]


def test_a_long_body_is_no_head(talk: Any) -> None:
    body = json.dumps(
        {"model": "scripted", "input": "a" * (3 * MAX_HEAD), "stream": False}
    ).encode()
    start = (
        "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    for pieces in ((start, body), (start + body,)):
        status, _, answer = talk(*pieces)
        # It was read, and understood: only the model has no room for it.
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


def test_what_is_no_http_is_refused_in_the_envelope(talk: Any) -> None:
    for said in (
        b"GARBAGE\r\n\r\n",
        b"FOO /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    ):
        status, headers, body = talk(said)
        assert status == 400
        assert headers["content-type"] == "application/json"
        assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["responses", "chat/completions"])
def test_a_request_is_answered_before_what_follows_it_is_refused(
    server: Any, path: str, stream: bool
) -> None:
    said = (
        {"input": "hello"}
        if path == "responses"
        else {"messages": [{"role": "user", "content": "hello"}]}
    )
    body = json.dumps({"model": "scripted", "stream": stream, **said}).encode()
    request = b"POST /v1/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as sock:
        sock.sendall(2 * (request % (path.encode(), len(body), body)) + b"GARBAGE\r\n\r\n")
        answers = sock.makefile("rb").read().split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"200", b"400"]
    assert answers[-1].endswith(b"}")


def test_requests_in_a_row_on_one_connection_are_counted_each_by_itself(server: Any) -> None:
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as sock:
        for _ in range(4):
            sock.sendall(head(f"X-Long: {'a' * (MAX_HEAD // 2)}"))
            file = sock.makefile("rb")
            assert int(file.readline().split()[1]) == 200
            length = 0
            while line := file.readline().strip():
                name, _, value = line.decode().partition(": ")
                length = int(value) if name.lower() == "content-length" else length
            file.read(length)


def test_head_is_get_without_the_body(server: Any, http: httpx.Client) -> None:
    """On one connection, so that a body would be read as the next answer."""
    stored = http.post("/v1/responses", json={"model": "scripted", "input": "hello"}).json()["id"]
    for path in (
        "/v1/models",
        "/v1/models/scripted",
        f"/v1/responses/{stored}",
        "/v1/none",
        "/v1/responses",
    ):
        head, full = http.head(path), http.get(path)
        assert (head.status_code, head.content) == (full.status_code, b"")
        for name in ("content-type", "content-length", "allow"):
            assert head.headers.get(name) == full.headers.get(name)
        assert head.headers["x-request-id"]


def test_head_on_a_stream_sends_no_body(server: Any, http: httpx.Client) -> None:
    """The connection goes on: the next bytes are the answer to the next request."""
    body = {"model": "scripted", "input": "hello", "background": True, "stream": True}
    stored = fold(parse_sse(http.post("/v1/responses", json=body).content))["id"]
    path = f"/v1/responses/{stored}"
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as sock:
        file = sock.makefile("rb")
        for _ in range(2):
            sock.sendall(f"HEAD {path}?stream=true HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert file.readline() == b"HTTP/1.1 200 OK\r\n"
            headers = dict(iter(lambda: file.readline().strip().partition(b": ")[::2], (b"", b"")))
            assert headers[b"content-type"].startswith(b"text/event-stream")
            assert headers.get(b"connection") != b"close"
        sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        head, _, content = file.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert json.loads(content)["id"] == stored
