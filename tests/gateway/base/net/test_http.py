"""The HTTP client: what it sends, what it takes, and how a fetch fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from gateway.base.net.guard import HostGuard
from gateway.base.net.http import FetchFailure, fetched, http_client
from gateway.base.net.proxies import Proxy

LOCAL = HostGuard(["*"], allow_private=True, allow_plain=True)


@asynccontextmanager
async def serving(answers: Mapping[str, bytes], heads: list[str]) -> AsyncIterator[str]:
    """A server with whole answers by path. Adds the heads of requests to `heads`. Yields its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        writer.write(answers[head.split(" ")[1]])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def answer(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "connection: close", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(
    answers: Mapping[str, bytes],
    *,
    guard: HostGuard = LOCAL,
    check: Callable[[str], None] = lambda url: None,
    max_redirects: int = 2,
    seconds: float = 60.0,
    heads: list[str] | None = None,
) -> bytes:
    """The body at `/`, of at most 100 bytes."""

    async def run() -> bytes:
        found: list[str] = [] if heads is None else heads
        async with (
            serving(answers, found) as url,
            fetched(
                f"{url}/", guard=guard, check=check, headers={"user-agent": "test"},
                max_bytes=100, max_redirects=max_redirects, seconds=seconds,
            ) as response,
        ):  # fmt: skip
            return await response.aread()

    return asyncio.run(run())


def test_a_fetch_follows_redirects_without_reading_their_bodies() -> None:
    """Compressed or large bodies of redirects are no failures."""
    checked: list[str] = []
    heads: list[str] = []
    answers = {
        "/": answer(b"x" * 1000, "302 Found", location="/a", set_cookie="a=b"),
        "/a": answer(b"\x1f\x8b", "307 Temporary Redirect", location="/b", content_encoding="gzip"),
        "/b": answer(b"a tower"),
    }
    assert get(answers, check=checked.append, heads=heads) == b"a tower"
    assert [url.rpartition("/")[2] for url in checked] == ["", "a", "b"]
    assert all("accept-encoding: identity" in head.lower() for head in heads)
    assert all("user-agent: test" in head.lower() for head in heads)


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({"/": answer(b"x" * 101)}, "too_large"),
        ({"/": answer(b"\x1f\x8b", content_encoding="gzip")}, "compressed"),
        ({"/": answer(b"", "302 Found", location="/")}, "redirects"),
        ({"/": answer(b"", "302 Found", location="http://[")}, "connection"),
        ({"/": answer(b"short")[:-1]}, "connection"),
        ({"/": b"not HTTP\r\n\r\n"}, "connection"),
    ],
)
def test_a_fetch_says_how_it_fails(answers: Mapping[str, bytes], kind: str) -> None:
    with pytest.raises(FetchFailure) as caught:
        get(answers)
    assert caught.value.kind == kind


def test_a_host_that_is_refused_is_not_asked() -> None:
    heads: list[str] = []
    with pytest.raises(FetchFailure, match="loopback") as caught:
        get({"/": answer(b"")}, guard=HostGuard(["*"], allow_plain=True), heads=heads)
    assert caught.value.kind == "refused"
    assert heads == []


def test_a_url_that_the_caller_refuses_is_not_asked() -> None:
    class NotHere(Exception):
        pass

    def check(url: str) -> None:
        if url.endswith("/secret"):
            raise NotHere

    heads: list[str] = []
    with pytest.raises(NotHere):
        get({"/": answer(b"", "302 Found", location="/secret")}, check=check, heads=heads)
    assert len(heads) == 1


def test_a_fetch_ends_in_time() -> None:
    async def run() -> None:
        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            async with fetched(
                url, guard=LOCAL, check=lambda url: None, headers={}, max_bytes=1, max_redirects=0, seconds=0.1
            ):  # fmt: skip
                raise AssertionError

    with pytest.raises(FetchFailure, match=r"within 0\.1 seconds") as caught:
        asyncio.run(run())
    assert caught.value.kind == "timeout"


def test_a_proxy_would_pass_the_guard_by() -> None:
    with pytest.raises(ValueError, match="proxy"):
        http_client(max_bytes=1, guard=LOCAL, proxy=Proxy("127.0.0.1", 3128))
