"""Names with several addresses, proxies between the gateway and its servers, and keys as people paste them."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError
from gateway.process.event_loop import new_event_loop
from gateway_remote import RemoteConfig
from gateway_remote.client import ReplicaClient, headers_of, tls_context
from gateway_remote.discovery import addresses_of_replicas
from gateway_remote.failures import ReplicaFailure
from gateway_remote.happy_eyeballs import addresses_of, first_connected
from gateway_remote.replica import endpoint
from gateway_remote.stalls import StallMonitor
from tests.clock import Clock

LOOPS = [asyncio.new_event_loop, new_event_loop]


def client_of(tls: ssl.SSLContext | None = None, **headers: str) -> ReplicaClient:
    return ReplicaClient(
        StallMonitor(60, Clock()),
        headers=headers,
        connect_timeout=20,
        tls=tls or ssl.create_default_context(),
        clock=Clock(),
    )


HANDLERS: set[asyncio.Task[Any]] = set()


def handled() -> None:
    """Note the task that serves a connection, for `all_handled`."""
    task = asyncio.current_task()
    assert task is not None
    HANDLERS.add(task)
    task.add_done_callback(HANDLERS.discard)


async def all_handled() -> None:
    """Wait until all connections are closed, so that none is left to the garbage collector."""
    await asyncio.sleep(0)
    await asyncio.gather(*HANDLERS)
    for _ in range(3):
        await asyncio.sleep(0.01)


async def serve(**options: Any) -> tuple[asyncio.Server, int, list[bytes]]:
    """A server that answers each request with 204, and what it was sent."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled()
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                asked.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, **options)
    return server, server.sockets[0].getsockname()[1], asked


async def attempts(outcomes: dict[str, str], *, delay: float) -> tuple[str, list[str], list[str]]:
    """Connect to addresses that accept, refuse or stay silent. Returns the connected one, those tried, and those closed."""
    tried: list[str] = []
    closed: list[str] = []

    async def connect(address: str) -> str:
        tried.append(address)
        match outcomes[address]:
            case "silent":
                await asyncio.Event().wait()
            case "refuses":
                raise OSError(f"{address} refuses")
        return address

    return await first_connected([*outcomes], connect, closed.append, delay=delay), tried, closed


@pytest.mark.anyio
async def test_the_next_address_is_tried_when_one_is_silent_or_refuses() -> None:
    async with asyncio.timeout(30):
        found, tried, closed = await attempts({"a": "silent", "b": "accepts", "c": "accepts"}, delay=0.01)  # fmt: skip
        assert (found, tried, closed) == ("b", ["a", "b"], [])
        found, tried, _ = await attempts({"a": "refuses", "b": "refuses", "c": "accepts"}, delay=60)
        assert (found, tried) == ("c", ["a", "b", "c"])
        found, tried, _ = await attempts({"a": "silent", "b": "refuses", "c": "accepts"}, delay=0.01)  # fmt: skip
        assert (found, tried) == ("c", ["a", "b", "c"])
        with pytest.raises(OSError, match="a refuses"):
            await attempts({"a": "refuses", "b": "refuses"}, delay=60)


@pytest.mark.anyio
async def test_who_stops_waiting_leaves_no_attempt() -> None:
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await attempts({"a": "silent", "b": "silent"}, delay=0.01)
    assert asyncio.all_tasks() == before


def resolving(monkeypatch: pytest.MonkeyPatch, name: str, addresses: list[str]) -> None:
    resolve = socket.getaddrinfo

    def name_server(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in (name, name.encode()):
            return resolve(host, *args, **kwargs)
        return [found for each in addresses for found in resolve(each, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", name_server)


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_proxy")
def test_a_first_address_without_an_answer_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue of connections stands for a black hole: the system drops what would not fit."""

    async def scenario() -> int:
        with socket.socket() as hole:
            server, port, _ = await serve()
            hole.bind(("127.0.0.2", port))
            hole.listen(0)
            stuffed = [socket.socket() for _ in range(4)]
            for each in stuffed:
                each.setblocking(False)
                with suppress(BlockingIOError):
                    each.connect(("127.0.0.2", port))
            resolving(monkeypatch, "two.example", ["127.0.0.2", "127.0.0.1"])
            client = client_of()
            try:
                return await client.status(endpoint(f"http://two.example:{port}"), "/", within=20)
            finally:
                client.close()
                server.close()
                await all_handled()
                for each in stuffed:
                    each.close()

    assert asyncio.run(scenario()) == 200


@pytest.mark.anyio
async def test_families_of_addresses_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "both.example", ["fd00::1", "fd00::2", "10.0.0.1"])
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", lambda *a, **k: asyncio.to_thread(socket.getaddrinfo, *a, **k))  # fmt: skip
    assert await addresses_of("both.example", 80) == ["fd00::1", "10.0.0.1", "fd00::2"]
    assert await addresses_of("10.1.1.1", 80) == ["10.1.1.1"]


@pytest.mark.parametrize(
    ("found", "replicas"),
    [
        (["fd00::1", "10.0.0.1"], ["10.0.0.1"]),
        (["10.0.0.2", "10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]),
        (["fd00::2", "fd00::1"], ["fd00::1", "fd00::2"]),
        (["fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]),
        (["fd00::1", "fd00::2", "10.0.0.1"], ["fd00::1", "fd00::2"]),
        ([], []),
    ],
)
def test_both_addresses_of_one_server_are_one_replica(
    found: list[str], replicas: list[str]
) -> None:
    infos = [each for name in found for each in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)]  # fmt: skip
    assert addresses_of_replicas(infos) == replicas


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=engine.example",
         "-addext", "subjectAltName=DNS:engine.example"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


class TunnelProxy:
    """An HTTP proxy that reaches one server, whatever it is asked for."""

    def __init__(self, target: int, status: bytes = b"200 Connection established") -> None:
        self.target = target
        self.status = status
        self.asked: list[bytes] = []

    async def start(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled()
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 %b\r\n\r\n" % self.status)
        if not self.status.startswith(b"2"):
            writer.close()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(_copy(reader, outer), _copy(inner, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "the server's loop"])
@pytest.mark.parametrize("status", [b"200 OK", b"403 Forbidden"])
@pytest.mark.usefixtures("no_proxy")
def test_servers_with_tls_are_reached_through_the_proxy_of_the_environment(
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    status: bytes,
) -> None:
    async def scenario() -> None:
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        server, port, asked = await serve(ssl=serving)
        proxy = TunnelProxy(port, status)
        listening = await proxy.start()
        own = listening.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://ada:secret@127.0.0.1:{own}")
        client = client_of(tls_context(str(certificate / "cert.pem"), verify=True))
        where = endpoint("https://engine.example:8443")
        try:
            if status.startswith(b"2"):
                for _ in range(3):
                    assert await client.status(where, "/health", within=20) == 200
                assert len(asked) == 3
                assert client.connections_opened == 1, "a tunnel is used again"
            else:
                with pytest.raises(ReplicaFailure, match="answers 403") as caught:
                    await client.status(where, "/health", within=20)
                assert "secret" not in str(caught.value)
            (head,) = proxy.asked
            assert head.startswith(b"CONNECT engine.example:8443 HTTP/1.1\r\n")
            pair = base64.b64encode(b"ada:secret")
            assert b"\r\nProxy-Authorization: Basic %b\r\n" % pair in head
        finally:
            client.close()
            listening.close()
            server.close()
            await all_handled()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


@pytest.mark.usefixtures("no_proxy")
def test_servers_without_tls_and_those_of_no_proxy_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> int:
        server, port, _ = await serve()
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        client = client_of()
        try:
            return await client.status(endpoint(f"http://127.0.0.1:{port}"), "/", within=20)
        finally:
            client.close()
            server.close()
            await all_handled()

    assert asyncio.run(scenario()) == 200


@pytest.mark.parametrize("around", ["\n", "\r\n", "\ufeff", "\u00a0", " \t\u200b"])
def test_a_key_is_sent_without_what_surrounds_it(
    monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    monkeypatch.setenv("UP_KEY", f"{around}sk-1{around}")
    assert RemoteConfig(api_key_env="UP_KEY").key() == "sk-1"
    assert RemoteConfig(api_key=f"{around}sk-1{around}").key() == "sk-1"
    assert headers_of({"X-Key": f"{around}a{around}"}, None) == {"X-Key": "a"}


def test_a_key_that_cannot_be_sent_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UP_KEY", "sk\u00a0secret")
    with pytest.raises(ConfigurationError, match=r"UP_KEY \(api_key_env\) has the character U\+00A0") as caught:  # fmt: skip
        RemoteConfig(api_key_env="UP_KEY").key()
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="api_key has the character"):
        RemoteConfig(api_key="sk-é").key()
    monkeypatch.setenv("UP_KEY", " \n")
    with pytest.raises(ConfigurationError, match="not set"):
        RemoteConfig(api_key_env="UP_KEY").key()
    with pytest.raises(ConfigurationError, match=r"headers\.x-a has"):
        headers_of({"x-a": "a\nb"}, None)
