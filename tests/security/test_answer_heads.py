"""Heads of answers that servers send to the gateway: interim answers without end, and long heads."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from gateway.base.net import http_transport
from gateway.base.net.http_transport import MAX_HEAD_BYTES, HttpTransport
from gateway.base.net.tls import accept_private_authorities

pytestmark = pytest.mark.anyio
INTERIM = b"HTTP/1.1 100 \r\n\r\n"
FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


@asynccontextmanager
async def server(answer: bytes, *, endless: bool = False, tls: Path | None = None) -> AsyncIterator[str]:  # fmt: skip
    """A server that gives each request `answer`, or repeats it `endless`ly; its URL."""
    tasks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer)
                    await writer.drain()
                    while endless:
                        writer.write(answer)
                        await writer.drain()
        finally:
            writer.transport.abort()

    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "cert.pem", tls / "key.pem")
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{port}/"
    finally:
        listening.close()
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)


def client(verify: ssl.SSLContext | None = None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=HttpTransport(verify), timeout=60.0, trust_env=False)


@pytest.mark.parametrize("filler", [INTERIM, b"HTTP/1.1 103 Hints\r\nlink: </a>\r\n\r\n"])
async def test_interim_answers_without_end_fail_the_request(filler: bytes) -> None:
    async with server(filler * 4000, endless=True) as url, client() as http:
        with pytest.raises(httpx2.RemoteProtocolError, match="too long"):
            await http.get(url)


async def test_interim_answers_let_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is parsed between two turns of the event loop is bounded."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(http_transport, "MAX_HEAD_BYTES", 10 * MAX_HEAD_BYTES)
    async with server(INTERIM * (MAX_HEAD_BYTES // len(INTERIM)) + FINE) as url, client() as http:
        counting = asyncio.create_task(count())
        assert (await http.get(url)).text == "hello"
        counting.cancel()
    assert turns >= MAX_HEAD_BYTES // 4096


async def test_few_interim_answers_and_a_large_head_are_read_and_the_connection_is_kept() -> None:
    head = b"HTTP/1.1 200 OK\r\nx-policy: " + b"x" * 40_000 + b"\r\ncontent-length: 300000\r\n\r\n"
    body = bytes(range(250)) * 1200
    async with server(INTERIM * 20 + head + body) as url, client() as http:
        for _ in range(5):
            answer = await http.get(url)
            assert answer.content == body
            assert len(answer.headers["x-policy"]) == 40_000


async def test_the_body_after_the_head_is_not_limited() -> None:
    size = 4 * MAX_HEAD_BYTES
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size
    async with server(answer) as url, client() as http:
        assert len((await http.get(url)).content) == size


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A folder with `cert.pem` and `key.pem`, of 127.0.0.1."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path


async def test_over_tls_it_is_the_same(certificate: Path) -> None:
    authority = str(certificate / "cert.pem")
    trusting = accept_private_authorities(ssl.create_default_context(cafile=authority))
    async with (
        server(INTERIM * 4000, endless=True, tls=certificate) as url,
        client(trusting) as http,
    ):
        with pytest.raises(httpx2.RemoteProtocolError, match="too long"):
            await http.get(url)
    size = 4 * MAX_HEAD_BYTES
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size
    async with server(answer, tls=certificate) as url, client(trusting) as http:
        for _ in range(3):
            assert len((await http.get(url)).content) == size
