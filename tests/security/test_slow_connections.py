"""Clients that are slow, that say nothing, that do not read, or that are too many."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from gateway.config import ServerConfig
from gateway.http.connections.connections import Connections
from gateway.http.connections.http_protocol import LimitedHttpProtocol
from gateway.process.event_loop import new_event_loop
from gateway_testing.server import RunningGateway, run_gateway
from gateway_testing.store_records import message
from tests.waiting import wait_until

SCENARIO = Path(__file__).parents[1] / "e2e" / "scenario.json"
MODELS: dict[str, Any] = {"models": {"m": {"engine": "scripted", "path": str(SCENARIO)}}}
HEAD = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n"
GET = HEAD + b"\r\n"
POST = (
    b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 100\r\n"
)
LONG = 120.0
"""Seconds after which a test gives up: a machine that has others to serve is slow."""


@pytest.fixture(scope="module", params=["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Transports of the two event loops differ in what they say of their buffers, and in how they close."""
    factory = new_event_loop if request.param == "uvloop" else None
    limits = {"head_timeout": 1, "body_timeout": 1, "send_timeout": 1, "keep_alive": 60}
    with run_gateway(
        {**MODELS, "server": limits}, tmp_path_factory.mktemp("slow"), loop_factory=factory
    ) as running:
        yield running


@pytest.fixture
def patient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningGateway]:
    """For clients that are slow and keep their deadlines, which are longer than a busy machine stands still."""
    limits = {"head_timeout": 4, "body_timeout": 4, "send_timeout": 4, "keep_alive": 60}
    with run_gateway({**MODELS, "server": limits}, tmp_path, loop_factory=request.param) as running:
        yield running


on_both_loops = pytest.mark.parametrize(
    "patient",
    [
        pytest.param(new_event_loop, id="uvloop"),
        pytest.param(None, id="asyncio", marks=pytest.mark.slow),
    ],
    indirect=True,
)


def opened(gateway: RunningGateway, *, receive_buffer: int | None = None) -> socket.socket:
    parts = urlsplit(gateway.base_url)
    made = socket.socket()
    if receive_buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.settimeout(LONG)
    made.connect((parts.hostname, parts.port))
    return made


def rest(sock: socket.socket) -> bytes:
    """Everything up to the end of the connection, which has to come."""
    parts = []
    try:
        while part := sock.recv(1 << 20):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def error_of(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert b"connection: close" in head.lower()
    assert error["message"]
    return int(head.split()[1]), error["code"]


def read_answer(sock: socket.socket) -> None:
    """Read one answer with a content length."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = sock.recv(1 << 16)
        assert part, "the connection has ended"
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    missing = int(head.lower().partition(b"content-length:")[2].split()[0]) - len(body)
    while missing > 0:
        missing -= len(sock.recv(missing))


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"", None), (b"\r\n\r\n", None), (b"G", 408), (HEAD, 408), (HEAD + b"x-long: aaa", 408)],
    ids=["nothing", "blank lines", "one byte", "no end", "a header without an end"],
)
@pytest.mark.parametrize("kept", [False, True], ids=["the first request", "a further request"])
@pytest.mark.slow
def test_a_head_that_does_not_come_ends_the_connection(
    gateway: RunningGateway, sent: bytes, status: int | None, kept: bool
) -> None:
    if kept and not sent:
        pytest.skip("an idle connection may stay for keep_alive")
    with closing(opened(gateway)) as sock:
        if kept:
            sock.sendall(GET)
            read_answer(sock)
        sock.sendall(sent)
        answer = rest(sock)
    if status is None:
        assert answer == b""
    else:
        assert error_of(answer) == (status, "request_timeout")


def drip(sock: socket.socket, piece: bytes) -> bytes:
    """Send `piece` again and again, until the server ends the connection; what it said."""
    give_up = time.monotonic() + LONG
    sock.settimeout(0.1)
    said = b""
    while time.monotonic() < give_up:
        try:
            sock.sendall(piece)
            part = sock.recv(1 << 16)
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return said
        if not part:
            return said
        said += part
    raise AssertionError("the connection goes on")


@pytest.mark.parametrize(
    ("start", "piece"),
    [(HEAD, b"x-a: b\r\n"), (HEAD + b"x-long: ", b"a"), (b"", b"\r\n"), (GET, b"\r\n"), (GET, b"G")],
    ids=["headers", "one header", "blank lines", "blank lines after a request", "a method"],
)  # fmt: skip
def test_the_deadline_is_for_the_whole_head_and_not_for_each_byte(
    gateway: RunningGateway, start: bytes, piece: bytes
) -> None:
    with closing(opened(gateway)) as sock:
        sock.sendall(start)
        drip(sock, piece)


def test_a_body_that_drips_ends_the_request(gateway: RunningGateway) -> None:
    with closing(opened(gateway)) as sock:
        sock.sendall(POST + b"\r\n")
        said = drip(sock, b" ")
    assert said == b"" or error_of(said) == (408, "request_timeout")


def test_a_body_that_nobody_waits_for_does_not_hold_the_connection(gateway: RunningGateway) -> None:
    """A request that is answered before its body has come: the rest of the body has a deadline too."""
    with closing(opened(gateway)) as sock:
        sock.sendall(
            b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n"
        )
        read_answer(sock)
        drip(sock, b" ")


def test_connections_without_a_request_are_closed_and_others_served(
    gateway: RunningGateway,
) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(closing(opened(gateway))) for _ in range(300)]
        assert httpx.get(f"{gateway.base_url}/models", timeout=LONG).status_code == 200
        for sock in silent:
            assert rest(sock) == b""


@on_both_loops
def test_a_request_that_runs_longer_than_the_deadlines_is_not_ended(
    patient: RunningGateway,
) -> None:
    """Pieces of the next request wait with it: its deadline begins when the answer has gone."""
    with closing(opened(patient)) as sock:
        body = json.dumps(
            {"model": "m", "input": "never stop", "max_output_tokens": 160, "stream": True}
        ).encode()
        sock.sendall(POST.replace(b"100", b"%d" % len(body)) + b"\r\n" + body + HEAD)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += sock.recv(1 << 16)
        assert b"[DONE]" in received
        sock.sendall(b"\r\n")
        read_answer(sock)


def big_list(gateway: RunningGateway) -> str:
    """The path of an answer of 16 MB. What it has is stored from within: a request of that size has a deadline."""
    made = httpx.post(f"{gateway.base_url}/conversations", json={}, timeout=LONG).json()
    items = [message("user", "x" * (1 << 20)) for _ in range(16)]
    store = gateway.services.store
    assert store is not None
    assert gateway.run(store.append_items(made["id"], items))
    return f"/v1/conversations/{made['id']}/items"


def test_a_client_that_does_not_read_is_disconnected(gateway: RunningGateway) -> None:
    path = big_list(gateway)
    with closing(opened(gateway, receive_buffer=4096)) as sock:
        sock.sendall(f"GET {path}?limit=100 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        first = sock.recv(1)  # the gateway has begun to answer
        wait_until(lambda: not is_open(gateway, sock), "the connection is closed")
        received = first + rest(sock)
    assert len(received) < 1 << 24


@on_both_loops
def test_a_client_that_reads_slowly_gets_everything(patient: RunningGateway) -> None:
    path = big_list(patient)
    with closing(opened(patient)) as sock:
        sock.sendall(f"GET {path}?limit=100 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())  # fmt: skip
        received = 0
        for _ in range(60):
            time.sleep(0.1)
            received += len(sock.recv(1 << 17))
        received += len(rest(sock))
    assert received > 1 << 24


def is_open(gateway: RunningGateway, sock: socket.socket) -> bool:
    """Whether the gateway, which runs in this process, holds its end of the connection `sock`."""
    ports = (urlsplit(gateway.base_url).port, sock.getsockname()[1])
    mine = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    with open("/proc/net/tcp") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            at, peer = (int(field.rpartition(":")[2], 16) for field in fields[1:3])
            if (at, peer) == ports and f"socket:[{fields[9]}]" in mine:
                return True
    return False


def test_more_connections_than_allowed_are_told_so(tmp_path: Any) -> None:
    limits = {"max_connections": 5, "body_timeout": 600}
    with run_gateway({**MODELS, "server": limits}, tmp_path) as gateway:
        with ExitStack() as stack:
            held = [stack.enter_context(closing(opened(gateway))) for _ in range(5)]
            for sock in held:
                sock.sendall(GET)
                read_answer(sock)
                begin_request(sock)
            for _ in range(20):
                with closing(opened(gateway)) as more:
                    assert error_of(rest(more)) == (503, "too_many_connections")
            with pytest.raises((httpx.TransportError, httpx.HTTPStatusError)):
                httpx.get(f"{gateway.base_url}/models").raise_for_status()
            held[0].sendall(b"{}")  # those that are there go on
            assert b" 400 " in held[0].recv(100)
        wait_until(
            lambda: httpx.get(f"{gateway.base_url}/models").status_code == 200,
            "there is room again",
        )


def test_idle_connections_make_room_and_the_oldest_goes_first(tmp_path: Any) -> None:
    limits = {"max_connections": 5, "body_timeout": 600, "keep_alive": 600}
    with run_gateway({**MODELS, "server": limits}, tmp_path) as gateway, ExitStack() as stack:
        held = [stack.enter_context(closing(opened(gateway))) for _ in range(5)]
        for sock in (*held, held[0]):  # the first one is used again
            sock.sendall(GET)
            read_answer(sock)
        begin_request(held[2])
        for oldest in (held[1], held[3]):
            new = stack.enter_context(closing(opened(gateway)))
            new.sendall(GET)
            read_answer(new)
            assert rest(oldest) == b""
        for sock in (held[0], held[4]):
            sock.sendall(GET)
            read_answer(sock)
        held[2].sendall(b"{}")
        assert b" 400 " in held[2].recv(100)


@dataclass(eq=False)
class Transport:
    """One whose client has not read `unsent` bytes."""

    unsent: int
    closed: bool = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_connections_whose_clients_do_not_read_make_no_room() -> None:
    """They would stay until `send_timeout`, beside those that come in their places: the server would run out of files."""
    connections = Connections(ServerConfig())
    made = [Transport(unsent) for unsent in (1, 0, 9, 0, 5)]
    for transport in made:
        connection = LimitedHttpProtocol.__new__(LimitedHttpProtocol)
        connection.transport = cast("asyncio.Transport", transport)
        connections.idle[connection] = None
    assert [connections.close_idle() for _ in made] == [True, True, False, False, False]
    assert [each.closed for each in made] == [not each.unsent for each in made]


def test_a_websocket_does_not_begin_before_the_answers_to_earlier_requests(
    gateway: RunningGateway,
) -> None:
    """They would come within its messages, and it would be closed, or make room for others, as a connection without a request."""
    early = POST.replace(b"100", b"2") + b"\r\n{}"
    handshake = (
        b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    for requests in (early, early + early):
        with closing(opened(gateway)) as sock:
            sock.sendall(requests + handshake)
            received = rest(sock)
        statuses = [each[:4] for each in received.split(b"HTTP/1.1")[1:]]
        assert statuses == [b" 400"] * (requests.count(b"POST") + 1)
        assert b"A WebSocket begins after the answers" in received
    with closing(opened(gateway)) as sock:
        sock.sendall(early)
        assert b" 400 " in sock.recv(100)
        sock.sendall(handshake)
        received = b""
        while b"HTTP/1.1 101" not in received:
            more = sock.recv(1 << 16)
            assert more
            received += more


def begin_request(sock: socket.socket) -> None:
    """Begin a request whose body, of two bytes, is still to come. Returns once the server waits for it."""
    head = b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    sock.sendall(head + b"content-length: 2\r\nexpect: 100-continue\r\n\r\n")
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        received += sock.recv(1)
    assert received.startswith(b"HTTP/1.1 100")


def test_websockets_count_as_connections(tmp_path: Any) -> None:
    with run_gateway({**MODELS, "server": {"max_connections": 2}}, tmp_path) as gateway:
        url = gateway.base_url.replace("http", "ws") + "/responses"
        with connect(url), connect(url), closing(opened(gateway)) as more:
            assert error_of(rest(more)) == (503, "too_many_connections")


def test_a_websocket_message_that_does_not_end_closes_the_connection(
    gateway: RunningGateway,
) -> None:
    url = gateway.base_url.replace("http", "ws") + "/responses"
    for frame in (
        Frame(Opcode.TEXT, b"{", fin=False).serialize(mask=True),
        Frame(Opcode.TEXT, b"{" * 1000, fin=True).serialize(mask=True)[:500],
        b"\x81",
    ):
        with connect(url) as opened_socket:
            opened_socket.socket.sendall(frame)
            with pytest.raises(ConnectionClosed) as closed:
                opened_socket.recv(LONG)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_a_websocket_message_of_empty_fragments_is_refused(gateway: RunningGateway) -> None:
    url = gateway.base_url.replace("http", "ws") + "/responses"
    with connect(url) as opened_socket:
        first = Frame(Opcode.TEXT, b"", fin=False).serialize(mask=True)
        opened_socket.socket.sendall(first)
        empty = Frame(Opcode.CONT, b"", fin=False).serialize(mask=True)
        try:
            for _ in range(64):
                opened_socket.socket.sendall(empty * 1000)
        except OSError:  # the connection is closed, and the library may have closed its socket
            pass
        with pytest.raises(ConnectionClosed):
            opened_socket.recv(LONG)


@pytest.mark.slow
def test_a_websocket_client_that_pings_and_does_not_read_is_disconnected(
    gateway: RunningGateway,
) -> None:
    """The answers to its pings do not pile up."""
    with closing(opened(gateway, receive_buffer=4096)) as sock:
        sock.sendall(
            b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
        )
        assert b" 101 " in sock.recv(4096)
        pings = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 1000
        give_up = time.monotonic() + LONG
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while time.monotonic() < give_up:
                sock.sendall(pings)


def test_a_websocket_whose_headers_its_library_refuses_is_answered(gateway: RunningGateway) -> None:
    for more in (b"x-a: b\r\n" * 200, b"x-long: " + b"a" * 20_000 + b"\r\n"):
        with closing(opened(gateway)) as sock:
            sock.sendall(
                b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
                b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n" + more + b"\r\n"
            )  # fmt: skip
            assert error_of(rest(sock)) == (431, "request_headers_too_large")


def test_pipelined_requests_are_bounded_and_answered_in_turn(gateway: RunningGateway) -> None:
    with closing(opened(gateway)) as sock:
        sock.sendall(GET * 5000)
        answers = rest(sock)
    assert 1 <= answers.count(b"HTTP/1.1 200") <= 200
    assert answers.count(b"HTTP/1.1 400") == 1
    last = answers[answers.rindex(b"HTTP/1.1 400") :]
    assert error_of(last) == (400, "invalid_request")


def test_garbage_after_a_request_does_not_get_into_its_answer(gateway: RunningGateway) -> None:
    body = json.dumps({"model": "m", "input": "go slowly", "max_output_tokens": 20, "stream": True}).encode()  # fmt: skip
    with closing(opened(gateway)) as sock:
        sock.sendall(
            POST.replace(b"100", b"%d" % len(body)) + b"\r\n" + body + b"GARBAGE GARBAGE\r\n\r\n"
        )
        answer = rest(sock)
    stream, _, after = answer.partition(b"0\r\n\r\n")
    assert stream.count(b"HTTP/1.1") == 1
    assert b"[DONE]" in stream
    assert error_of(after) == (400, "invalid_request")


def test_a_pipelined_request_ends_with_its_client(gateway: RunningGateway) -> None:
    body = json.dumps({"model": "m", "input": "go slowly", "stream": True}).encode()
    services = gateway.services
    with closing(opened(gateway)) as sock:
        sock.sendall(POST.replace(b"100", b"%d" % len(body)) + b"\r\n" + body + GET)
        assert b"200 OK" in sock.recv(100)
        assert services.runs
        linger = struct.pack("ii", 1, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    wait_until(lambda: not services.runs, "the run has ended with its client")
