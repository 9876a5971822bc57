"""Requests at the edges of HTTP and JSON: refused in the envelope, with no error of the server and no standstill."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from gateway.access.access import hash_key
from gateway.process.event_loop import new_event_loop
from gateway_testing.server import RunningGateway, run_gateway

LONG = 60.0
BODY = b'{"model":"m","input":"hello"}'
CHUNK = b"1d\r\n" + BODY + b"\r\n"
HOST = b"host: localhost\r\n"
POST = b"POST /v1/responses HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"
GET = b"GET /v1/models HTTP/1.1\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
LENGTH = b"content-length: 29\r\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """For what is said in part: its deadlines are short."""
    limits = {"body_timeout": 2, "head_timeout": 2}
    with gateway_with(limits, tmp_path_factory.mktemp("extremes")) as running:
        yield running


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """For bodies of many megabytes, which a busy machine takes its time to send."""
    limits = {"body_timeout": 2 * LONG, "head_timeout": 2 * LONG}
    with gateway_with(limits, tmp_path_factory.mktemp("patient")) as running:
        yield running


@contextmanager
def gateway_with(limits: dict[str, float], folder: Path) -> Iterator[RunningGateway]:
    pytest.importorskip("gateway_file_search")
    config = {
        "models": {"m": {"engine": "scripted"}},
        "tools": {"file_search": {}},
        "server": limits,
    }
    with run_gateway(config, folder, loop_factory=new_event_loop) as running:
        yield running


def say(gateway: RunningGateway, said: bytes) -> bytes:
    """All that the server answers, until it closes or has answered a last request that asks it to."""
    parts = urlsplit(gateway.base_url)
    answer = b""
    with closing(socket.create_connection((parts.hostname, parts.port), timeout=LONG)) as sock:
        try:
            sock.sendall(said)
            while part := sock.recv(1 << 20):
                answer += part
                if _complete(answer):
                    break
        except (ConnectionResetError, BrokenPipeError):
            pass
    return answer


def said_until_closed(gateway: RunningGateway, *said: bytes, seconds: float = 0) -> bytes:
    """All that the server answers until it closes, to what is said with so many seconds between."""
    parts = urlsplit(gateway.base_url)
    answer = b""
    with closing(socket.create_connection((parts.hostname, parts.port), timeout=LONG)) as sock:
        for each in said:
            sock.sendall(each)
            time.sleep(seconds)
        while part := sock.recv(1 << 20):
            answer += part
    return answer


def _complete(answer: bytes) -> bool:
    head, _, body = answer.rpartition(b"HTTP/1.1 ")[2].partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split()
    return bool(length) and len(body) >= int(length[0])


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    status = int(answer.split()[1])
    if status >= 400:
        assert set(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]) == {"message", "type", "param", "code"}  # fmt: skip
    return status


SMUGGLING = {
    "the same length twice": POST + LENGTH + LENGTH + b"\r\n" + BODY,
    "two lengths": POST + LENGTH + b"content-length: 5\r\n\r\n" + BODY,
    "a list of lengths": POST + b"content-length: 29, 29\r\n\r\n" + BODY,
    "a length and chunks": POST + LENGTH + CHUNKED + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "chunks and a length": POST + CHUNKED + LENGTH + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "an unknown coding": POST + b"transfer-encoding: xchunked\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "chunks not last": POST + b"transfer-encoding: chunked, identity\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "a coding before chunks": POST + b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "two codings": POST + CHUNKED + b"transfer-encoding: identity\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "a space before the colon": POST + b"transfer-encoding : chunked\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "a control character": POST + b"transfer-encoding: \x0bchunked\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "a length with a sign": POST + b"content-length: +29\r\n\r\n" + BODY,
    "a length in hexadecimal": POST + b"content-length: 0x1d\r\n\r\n" + BODY,
    "a length beyond 64 bits": POST + b"content-length: 99999999999999999999999\r\n\r\n" + BODY,
    "a chunk without a size": POST + CHUNKED + b"\r\nzz\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a negative chunk": POST + CHUNKED + b"\r\n-1\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk beyond 64 bits": POST + CHUNKED + b"\r\nffffffffffffffffff\r\n" + BODY + b"\r\n0\r\n\r\n",
    "two hosts": GET + HOST + b"host: evil.example\r\n\r\n",
    "the same host twice": GET + HOST + HOST + b"\r\n",
    "two keys": GET + HOST + b"authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n",
    "two keys of Anthropic": GET + HOST + b"x-api-key: a\r\nx-api-key: b\r\n\r\n",
    "no host": GET + b"\r\n",
    "a folded header": GET + HOST + b"x: a\r\n b\r\n\r\n",
    "a folded host": GET + b"host: localhost\r\n .evil.example\r\n\r\n",
    "a header before the host": GET + b" host: localhost\r\n\r\n",
    "lines without CR": GET.replace(b"\r", b"") + b"host: localhost\n\n",
    "a line without LF": GET + HOST + b"x: a\rb: c\r\n\r\n",
    "a zero byte in a value": GET + HOST + b"x: a\0b\r\n\r\n",
    "a zero byte in a name": GET + HOST + b"x\0: ab\r\n\r\n",
    "a zero byte in the path": b"GET /v1/mod\0els HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path that is no ASCII": b"GET /v1/\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
    "a header without a name": GET + HOST + b": x\r\n\r\n",
    "a name with a space": GET + HOST + b"a b: x\r\n\r\n",
    "no path": b"GET http://localhost HTTP/1.1\r\n" + HOST + b"\r\n",
    "another scheme": b"GET ftp://localhost/v1/models HTTP/1.1\r\n" + HOST + b"\r\n",
    "no target": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a relative path": b"GET v1/models HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.7": b"GET /v1/models HTTP/3.7\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a WebSocket without its key": b"GET /v1/responses HTTP/1.1\r\n" + HOST + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n",
    "a WebSocket by POST": POST + LENGTH + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n" + BODY,
}  # fmt: skip


@pytest.mark.parametrize("case", SMUGGLING)
def test_what_proxies_may_read_in_two_ways_is_refused(gateway: RunningGateway, case: str) -> None:
    answer = say(gateway, SMUGGLING[case])
    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1


OVERLONG = {
    "headers": GET + HOST + b"".join(b"a%d: b\r\n" % n for n in range(40_000)) + b"\r\n",
    "an extension of a chunk": POST + CHUNKED + b"\r\n1d;a=" + b"x" * 1_000_000,
    "a trailer": POST + CHUNKED + b"\r\n" + CHUNK + b"0\r\nx: " + b"y" * 1_000_000,
    "trailers": POST + CHUNKED + b"\r\n" + CHUNK + b"0\r\n" + b"x: y\r\n" * 100_000,
}


@pytest.mark.parametrize("case", OVERLONG)
def test_what_comes_beside_a_body_is_bounded(gateway: RunningGateway, case: str) -> None:
    assert status_of(say(gateway, OVERLONG[case])) == 431


H2C = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
LIST = GET + HOST + b"\r\n"
ANOTHER_PROTOCOL = {
    "a body": (POST + H2C + LENGTH + b"\r\n", BODY, b"200 200"),
    "chunks": (POST + H2C + CHUNKED + b"\r\n", CHUNK + b"0\r\n\r\n", b"200 200"),
    "no body": (GET + HOST + H2C + b"\r\n", b"", b"200 200"),
    "a body like a request": (POST + H2C + b"content-length: %d\r\n\r\n" % len(LIST), LIST, b"400 200"),
    "chunks in HTTP/1.0": (POST.replace(b"1.1", b"1.0") + H2C + CHUNKED + b"\r\n", CHUNK, b"400"),
    "an end": (POST + H2C.replace(b"upgrade,", b"upgrade, close,") + LENGTH + b"\r\n", BODY, b"200"),
    "twice": ((POST + H2C + LENGTH + b"\r\n" + BODY) * 2, b"", b"200 200 200"),
}  # fmt: skip


@pytest.mark.parametrize("case", ANOTHER_PROTOCOL)
@pytest.mark.parametrize("apart", [False, True])
def test_another_protocol_that_is_offered_changes_no_request(
    gateway: RunningGateway, case: str, apart: bool
) -> None:
    """Java's HTTP client offers HTTP/2 in every request. A body must not be lost, nor be read as the next request."""
    head, body, statuses = ANOTHER_PROTOCOL[case]
    last = GET + HOST + b"connection: close\r\n\r\n"
    said = (head, body + last) if apart else (head + body + last,)
    answer = said_until_closed(gateway, *said, seconds=0.1 * apart)
    assert b" ".join(re.findall(rb"HTTP/1\.1 (\d+)", answer)) == statuses


@pytest.mark.parametrize("what", [b"", b"connection: upgrade, close\r\nupgrade: h2c\r\n"])
@pytest.mark.parametrize("more", [LIST, b"no request\r\n\r\n"])
def test_what_follows_a_last_request_is_no_error_of_the_server(
    gateway: RunningGateway, what: bytes, more: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    last = POST + (what or b"connection: close\r\n") + LENGTH + b"\r\n" + BODY
    assert re.findall(rb"HTTP/1\.1 (\d+)", said_until_closed(gateway, last + more)) == [b"200"]
    # What the first connection has left to do is done when a second one is answered.
    assert status_of(say(gateway, GET + HOST + b"\r\n")) == 200
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_body_that_is_announced_too_large_is_refused_unread(gateway: RunningGateway) -> None:
    assert status_of(say(gateway, POST + b"content-length: 1000000000000\r\n\r\n")) == 413


ACCEPTED = {
    "chunks": POST + CHUNKED + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "an extension of a chunk": POST + CHUNKED + b"\r\n1d;a=b\r\n" + BODY + b"\r\n0\r\n\r\n",
    "trailers, which are no headers": POST
    + CHUNKED
    + b"\r\n"
    + CHUNK
    + b"0\r\nhost: evil.example\r\norigin: https://evil.example\r\n\r\n",
    "an expectation": POST + LENGTH + b"expect: 100-continue\r\n\r\n" + BODY,
    "HTTP/1.0 without a host": GET.replace(b"1.1", b"1.0") + b"\r\n",
    "a target with its host": b"GET http://localhost:80/v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    "many short headers": GET + HOST + b"".join(b"a%d: b\r\n" % n for n in range(4000)) + b"\r\n",
    "a value that is no ASCII": GET + HOST + b"x: \xff\xfe\r\n\r\n",
    "another protocol offered": GET + HOST + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n",
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_is_unusual_and_valid_is_answered(gateway: RunningGateway, case: str) -> None:
    answer = say(gateway, ACCEPTED[case])
    if answer.startswith(b"HTTP/1.1 100"):
        answer = answer.partition(b"\r\n\r\n")[2]
    assert status_of(answer) == 200


def test_the_host_of_the_target_stands_for_that_of_the_header(gateway: RunningGateway) -> None:
    for host in (b"evil.example", b"localhost@evil.example"):
        said = b"GET http://%b/v1/models HTTP/1.1\r\n" % host + HOST + b"\r\n"
        assert status_of(say(gateway, said)) == 403


@pytest.mark.parametrize("sent", [b'a"b<script>', b"a" * 5000, b"\xff", b"a b", b"%0d%0a", b""])
def test_a_request_id_that_is_not_clean_is_not_repeated(
    gateway: RunningGateway, sent: bytes
) -> None:
    answer = say(gateway, GET + HOST + b"x-request-id: " + sent + b"\r\n\r\n")
    ours = answer.partition(b"x-request-id: ")[2].split(b"\r\n")[0]
    assert ours.startswith(b"req_")
    assert b"x-request-id: mine-1\r\n" in say(gateway, GET + HOST + b"x-request-id: mine-1\r\n\r\n")


PATHS = [
    "/v1/models/..%2f..%2f..%2fetc%2fpasswd", "/v1/../v1/models", "/v1/models/%00", "/v1/models/%ff", "/v1/responses/%2e%2e",
    "/v1/responses/a%2fb", "/v1/responses/" + "a" * 20_000, "/v1/conversations/%0d%0aset-cookie:%20x/items", "/v1/models;x", "/%",
    "/v1/files/..%2f..%2fetc%2fpasswd/content", "/v1/files/%2e%2e/content", "/v1/files/%00/content", "/v1/files/*/content",
    "/v1/vector_stores/%2e%2e/files", "/v1/conversations/*/items", "/v1/responses/*", "/v1/responses/resp_%5b%5d?stream=true",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_leads_to_nothing_but_its_route(gateway: RunningGateway, path: str) -> None:
    answer = say(gateway, f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n")
    assert status_of(answer) == 404
    assert b"set-cookie" not in answer.partition(b"\r\n\r\n")[0].lower()


@pytest.mark.parametrize("path", ["/v1/models", "//v1/models", "/v1//models", "/v1/%6dodels", "/v1/models/", "/V1/models", "/v1/./models", "/health/../v1/models", "/health/%2e%2e/v1/models", "/health;/v1/models", "/metrics/../v1/models"])  # fmt: skip
def test_no_spelling_of_a_path_needs_no_key(tmp_path: Any, path: str) -> None:
    keys = [{"name": "ada", "sha256": hash_key("ada")}]
    config = {"server": {"api_keys": keys}, "models": {"m": {"engine": "scripted"}}}
    with run_gateway(config, tmp_path) as guarded:
        answer = say(guarded, f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n")
        assert status_of(answer) == 401


QUERIES = [
    "/v1/chat/completions?limit=1e9", "/v1/chat/completions?limit=1000000000", "/v1/chat/completions?limit=-1",
    "/v1/chat/completions?limit=%00", "/v1/chat/completions?limit=" + "9" * 5000, "/v1/chat/completions?order=%ff",
    "/v1/chat/completions?" + "&".join(f"metadata[k{n}]=v" for n in range(1000)), "/v1/files?limit=1e9",
    "/v1/files?limit=" + "9" * 5000, "/v1/vector_stores?limit=" + "9" * 5000, "/v1/vector_stores?limit=0",
]  # fmt: skip


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path[:50])
def test_a_query_beyond_its_bounds_is_refused(gateway: RunningGateway, path: str) -> None:
    answer = httpx.get(gateway.base_url.removesuffix("/v1") + path, timeout=LONG)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"]


@pytest.mark.parametrize("query", ["limit=9" + "9" * 5000, "limit=nan", "after=" + "x" * 10_000, "order=%00", "include[99999999999]=x", "a=b&" * 10_000])  # fmt: skip
def test_queries_on_stored_objects_are_refused_or_passed_over(
    gateway: RunningGateway, query: str
) -> None:
    made = httpx.post(f"{gateway.base_url}/responses", json={"model": "m", "input": "x"}).json()
    for path in (f"/responses/{made['id']}", f"/responses/{made['id']}/input_items"):
        answer = httpx.get(f"{gateway.base_url}{path}?{query}", timeout=LONG)
        assert answer.status_code in (200, 400, 404)


DEEP = 100_000
BODIES: dict[str, bytes] = {
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep lists without an end": b"[" * DEEP,
    "NaN": b'{"model":"m","input":"x","temperature":NaN}',
    "infinity": b'{"model":"m","input":"x","temperature":1e999}',
    "minus infinity": b'{"model":"m","input":-Infinity}',
    "a long number": b'{"model":"m","input":"x","seed":' + b"9" * 100_000 + b"}",
    "a long fraction": b'{"model":"m","max_output_tokens":1' + b"0" * 400_000 + b"e-400000}",
    "keys twice": b'{"model":"m","model":"n","input":"x","input":5}',
    "a lone surrogate": b'{"model":"m","input":"\\ud800","messages":[{"role":"user","content":"\\udfff"}]}',
    "a raw surrogate": b'{"model":"m","input":"\xed\xa0\x80"}',
    "UTF-16": '{"model":"m"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"model":"m","input":"x"}',
    "a zero byte": b'{"model":"m","input":"a\x00"}',
    "white space": b" " * 5_000_000,
    "a string": b'"x"',
    "null": b"null",
    "a list": b"[]",
    "many keys": b"{" + b",".join(b'"k%d":1' % n for n in range(2_000_000)) + b"}",
    "many empty values": b'{"model":"m","input":[' + b",".join([b"[]"] * 8_000_000) + b"]}",
    "a long key": b'{"' + b"k" * 1_000_000 + b'":1,"model":"m"}',
    "no end": b'{"model":"m","input":"' + b"x" * 1_000_000,
}


@pytest.mark.parametrize(
    ("route", "field", "item"),
    [
        ("/v1/responses", "input", b'{"role":"user","content":"x"}'),
        ("/v1/responses/compact", "input", b'{"role":"user","content":"x"}'),
        ("/v1/responses", "tools", b'{"type":"function","name":"f"}'),
        ("/v1/chat/completions", "messages", b'{"role":"user","content":"x"}'),
        ("/v1/chat/completions", "tools", b'{"type":"function","function":{"name":"f"}}'),
        ("/v1/messages", "messages", b'{"role":"user","content":"x"}'),
    ],
)
def test_the_items_of_a_request_are_bounded(
    client: httpx.Client, route: str, field: str, item: bytes
) -> None:
    many = b",".join([item] * 100_000)
    begin = b'{"model":"m","max_tokens":5,'
    if field == "tools":
        begin += b'"input":"x",' if "responses" in route else b'"messages":[{"role":"user","content":"x"}],'  # fmt: skip
    answer = client.post(route, content=begin + b'"%b":[%b]}' % (field.encode(), many))
    assert answer.status_code == 400
    assert "too long" in answer.json()["error"]["message"]


FIELDS = (
    "input", "messages", "metadata", "tools", "instructions", "text", "tool_choice", "conversation", "response_format", "prompt",
    "items", "model", "content", "temperature", "max_output_tokens", "stop", "logit_bias", "n", "tokens", "attributes", "filters",
    "query", "name", "file_ids", "expires_after", "include", "stream", "user", "chat_template_kwargs", "system", "max_tokens",
    "documents", "text_1", "top_n",
)  # fmt: skip
VALUES = (
    b"[" * 100 + b"]" * 100, b'{"a":' * 120 + b"1" + b"}" * 120, b"9" * 5000, b'"\\ud800"', b"1e999", b"[null]", b"{}", b"[[]]",
    b"true", b'""', b"-1", b"99999999999", b'[{"type":{}}]', b'{"type":[]}',
)  # fmt: skip
ROUTES = (
    "/tokenize", "/detokenize", "/v1/chat/completions", "/v1/chat/completions/x", "/v1/completions", "/v1/conversations",
    "/v1/conversations/x", "/v1/conversations/{conversation}/items", "/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/responses", "/v1/responses/compact",
    "/v1/responses/input_tokens", "/v1/messages", "/v1/messages/count_tokens", "/v1/vector_stores", "/v1/vector_stores/x",
    "/v1/vector_stores/x/search", "/v1/vector_stores/x/files", "/v1/vector_stores/x/file_batches",
)  # fmt: skip


@pytest.fixture(scope="module")
def client(patient: RunningGateway) -> Iterator[httpx.Client]:
    root = patient.base_url.removesuffix("/v1")
    headers = {"content-type": "application/json"}
    with httpx.Client(base_url=root, headers=headers, timeout=2 * LONG) as made:
        yield made


@pytest.fixture(scope="module")
def conversation(client: httpx.Client) -> str:
    made: str = client.post("/v1/conversations", json={}).json()["id"]
    return made


class Pulse:
    """Asks `/health` all the time; `longest` is how long one answer took."""

    def __init__(self, client: httpx.Client) -> None:
        self.longest = 0.0
        self._url = f"{client.base_url}/health"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with httpx.Client(timeout=2 * LONG) as client:
            while not self._ended.wait(0.02):
                begun = time.monotonic()
                client.get(self._url)
                self.longest = max(self.longest, time.monotonic() - begun)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_no_json_breaks_the_server_or_stops_it(
    client: httpx.Client, conversation: str, route: str
) -> None:
    path = route.replace("{conversation}", conversation)
    with Pulse(client) as pulse:
        for case, body in BODIES.items():
            answer = client.post(path, content=body)
            assert answer.status_code < 500, (case, answer.text[:500])
            if answer.status_code >= 400:
                assert answer.json()["error"]["message"]
            if case in ("NaN", "infinity", "a lone surrogate", "many keys", "deep lists"):
                assert answer.status_code in (400, 404), case
    assert pulse.longest < 30, "it stood still"


@pytest.mark.slow
@pytest.mark.parametrize("route", [route for route in ROUTES if route != "/v1/vector_stores"])
def test_no_value_of_a_field_breaks_the_server(
    client: httpx.Client, conversation: str, route: str
) -> None:
    path = route.replace("{conversation}", conversation)
    base = b'"prompt":"x","messages":[{"role":"user","content":"x"}],"max_tokens":5,'
    for field in FIELDS:
        for value in VALUES:
            for before in (b"", base if field not in ("prompt", "messages", "max_tokens") else b""):
                body = b'{%b"model":"m","%b":%b}' % (before, field.encode(), value)
                answer = client.post(path, content=body)
                assert answer.status_code < 500, (body[:200], answer.text[:500])
