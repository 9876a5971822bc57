"""Connections that requests and models make the gateway open: to allowed addresses only, for as long as they live."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeVar

import httpx2
import pytest

from gateway.base.net.guard import AddressRefused, HostGuard, refusal, resolve
from gateway.plugins.protocols import SessionContext
from gateway.wire.tools import McpTool
from gateway_browser.config import BrowserConfig, LocalConfig
from gateway_browser.documents import PageText
from gateway_browser.domains import ANY_PAGE, Domain, DomainFilter
from gateway_browser.errors import PageFailure
from gateway_browser.fetching import PageFetcher
from gateway_browser.reader import PageReader
from gateway_mcp.config import McpConfig, RemoteServersConfig
from gateway_mcp.connection import ServerFailure
from gateway_mcp.http import mcp_client
from gateway_mcp.servers import McpServers

T = TypeVar("T")
METADATA = {
    "AWS, Azure, Google Cloud and others": "169.254.169.254",
    "AWS, containers": "169.254.170.2",
    "AWS, IPv6": "fd00:ec2::254",
    "AWS, pods": "fd00:ec2::23",
    "Azure, WireServer": "168.63.129.16",
    "Google Cloud, IPv6": "fd20:ce::254",
    "Oracle Cloud, classic": "192.0.0.192",
    "Oracle Cloud, IPv6": "fd00:c1::a9fe:a9fe",
    "Alibaba Cloud": "100.100.100.200",
    "Alibaba Cloud, IPv6": "fd00:100::100:200",
    "Scaleway": "169.254.42.42",
    "Scaleway, IPv6": "fd00:42::42",
    "Akamai": "fd00:a9fe:a9fe::1",
    "OpenStack, IPv6": "fe80::a9fe:a9fe",
}


@pytest.mark.parametrize("cloud", METADATA)
def test_metadata_services_are_never_connected_to(cloud: str) -> None:
    address = METADATA[cloud]
    forms = [address]
    if "." in address:
        number = int.from_bytes(socket.inet_aton(address), "big")
        low = f"{number >> 16:x}:{number & 0xFFFF:x}"
        forms += [
            f"::ffff:{address}",
            f"::{address}",
            f"::ffff:0:{low}",
            f"64:ff9b::{low}",
            f"64:ff9b:1::{low}",
            f"2002:{low}::",
        ]
    for form in forms:
        assert refusal(form, allow_private=True) in ("metadata", "link-local"), form
        assert refusal(form, allow_private=False) is not None, form


class Recorder:
    """An HTTP server that notes each request, and answers by its path."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                recorder.asked.append(
                    (self.path, {name.lower(): value for name, value in self.headers.items()})
                )
                self.rfile.read(int(self.headers.get("content-length", 0)))
                with suppress(OSError):
                    recorder.answers.get(self.path, page)(self)

            do_GET = do_POST = do_DELETE = do_CONNECT = answer

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                pass  # a client that does not wait for the answer

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def page(handler: BaseHTTPRequestHandler) -> None:
    """A short page."""
    handler.send_response(200)
    handler.send_header("content-type", "text/plain")
    handler.send_header("content-length", "5")
    handler.end_headers()
    handler.wfile.write(b"hello")


def redirect(to: str, status: int = 302) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("location", to)
        handler.send_header("set-cookie", "a=b")
        handler.send_header("content-length", "0")
        handler.end_headers()

    return answer


@pytest.fixture
def start() -> Iterator[Callable[[], Recorder]]:
    with ExitStack() as stack:

        def start() -> Recorder:
            recorder = Recorder()
            stack.callback(recorder.close)
            return recorder

        yield start


@pytest.fixture
def recorder(start: Callable[[], Recorder]) -> Recorder:
    return start()


class Names:
    """A resolver; a name with several answers gives one after the other, the last for ever."""

    def __init__(self, **answers: Sequence[str]) -> None:
        self._answers = {name.replace("_", "."): list(each) for name, each in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if answers is None:
            return [host]  # an address
        return [answers.pop(0) if len(answers) > 1 else answers[0]]


HERE = Names(a_test=["127.0.0.1"], b_test=["127.0.0.1"], meta_test=["169.254.169.254"])


def fetch(
    url: str, names: Names | None = HERE, domains: DomainFilter = ANY_PAGE, **keys: Any
) -> PageText | str:
    """A page, or what its failure says."""
    config = BrowserConfig(
        provider="local", local=LocalConfig(path="."), **{"allow_private": True, **keys}
    )

    async def body() -> PageText | str:
        reader = PageReader(config)
        fetcher = (
            PageFetcher(config, reader)
            if names is None
            else PageFetcher(config, reader, resolve=names)
        )
        try:
            return await fetcher.fetch(url, domains)
        except PageFailure as failure:
            return str(failure)
        finally:
            await reader.close()

    return asyncio.run(body())


# Redirects.


@pytest.mark.parametrize("status", [302, 308])
@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("http://meta.test/", "link-local address"),
        ("http://169.254.169.254/latest", "link-local address"),
        ("http://[fd00:ec2::254]/", "metadata address"),
        ("http://192.0.0.192/", "metadata address"),
        ("http://[::ffff:168.63.129.16]/", "metadata address"),
        ("http://user:secret@b.test:PORT/", "user or a password"),
        ("http://user@b.test:PORT/", "user or a password"),
        ("ftp://b.test/", "not the http"),
        ("file:///etc/passwd", "not the http"),
        ("gopher://b.test:PORT/_x", "not the http"),
        ("http://b.test:99999/", "not the http"),
        ("http://other.example:PORT/", "not on this server's list"),
        ("http://b.test:PORT/" + "x" * 5000, "not the http"),
    ],
)
def test_a_redirect_leads_where_a_page_may_be_opened_or_nowhere(
    recorder: Recorder, to: str, why: str, status: int
) -> None:
    to = to.replace("PORT", str(recorder.port))
    recorder.answers["/1"] = redirect("/2", status)
    recorder.answers["/2"] = redirect(to, status)
    allowed = ("*.test", "169.254.169.254", "[fd00:ec2::254]", "192.0.0.192", "::ffff:a83f:8110", "::ffff:168.63.129.16")  # fmt: skip
    found = fetch(f"http://a.test:{recorder.port}/1", allow_hosts=allowed)
    assert isinstance(found, str)
    assert why in found
    assert recorder.paths == ["/1", "/2"]


def test_a_redirect_to_another_host_brings_nothing_along(
    recorder: Recorder, start: Callable[[], Recorder]
) -> None:
    other = start()
    recorder.answers["/1"] = redirect(f"http://b.test:{other.port}/2")
    assert isinstance(fetch(f"http://a.test:{recorder.port}/1"), PageText)
    [(_, headers)] = other.asked
    assert headers["host"] == f"b.test:{other.port}"
    assert not {"authorization", "cookie", "referer"} & headers.keys()


def test_a_redirect_stays_within_the_domains_of_the_request(recorder: Recorder) -> None:
    recorder.answers["/1"] = redirect(f"http://b.test:{recorder.port}/2")
    found = fetch(
        f"http://a.test:{recorder.port}/1", domains=DomainFilter(allowed=(Domain("a.test"),))
    )
    assert isinstance(found, str)
    assert "only pages of a.test" in found
    assert recorder.paths == ["/1"]


def test_a_redirect_to_a_blocked_domain_is_not_followed(recorder: Recorder) -> None:
    recorder.answers["/1"] = redirect(f"http://x.B.test.:{recorder.port}/2")
    found = fetch(
        f"http://a.test:{recorder.port}/1", domains=DomainFilter(blocked=(Domain("b.test"),))
    )
    assert isinstance(found, str)
    assert "blocks its domain" in found
    assert recorder.paths == ["/1"]


@pytest.mark.parametrize(
    "to", ["/secret", "//secret", "/x/../secret/y", "/%73ecret", "/x/%2e%2e/secret", "/secret?a"]
)
def test_no_other_writing_of_a_blocked_path_is_opened(recorder: Recorder, to: str) -> None:
    blocked = DomainFilter(blocked=(Domain("a.test", "/secret"),))
    recorder.answers["/1"] = redirect(f"http://a.test:{recorder.port}{to}")
    assert "blocks its domain" in str(fetch(f"http://a.test:{recorder.port}/1", domains=blocked))
    assert recorder.paths == ["/1"]


@pytest.mark.parametrize("to", ["/x/..;/secret", "/secret;x=1/y", "/%2573ecret", "/%5csecret", "/..%5csecret", "/x%252f..%252fsecret"])  # fmt: skip
def test_no_lenient_reading_of_a_blocked_path_is_opened(recorder: Recorder, to: str) -> None:
    blocked = DomainFilter(blocked=(Domain("a.test", "/secret"),))
    assert "blocks its" in str(fetch(f"http://a.test:{recorder.port}{to}", domains=blocked))
    assert not recorder.paths


@pytest.mark.parametrize("host", ["127.1", "2130706433", "[::ffff:127.0.0.1]", "b.test"])
def test_a_blocked_address_is_blocked_however_it_is_written(recorder: Recorder, host: str) -> None:
    blocked = DomainFilter(blocked=(Domain("127.0.0.1"),))
    found = str(fetch(f"http://{host}:{recorder.port}/", domains=blocked))
    assert "blocks its domain" in found or "not on this server's list" in found
    assert not recorder.paths


NO_HOSTS = ["http://a..example.com/", "http://" + "a" * 64 + ".example.com/", "http://xn--a..b/"]  # fmt: skip


@pytest.mark.parametrize("url", NO_HOSTS)
def test_a_host_that_cannot_be_one_is_no_page(recorder: Recorder, url: str) -> None:
    assert "connection" in str(fetch(url, None))
    recorder.answers["/1"] = redirect(url)
    assert "connection" in str(fetch(f"http://127.0.0.1:{recorder.port}/1", None))


def test_redirects_come_to_an_end(recorder: Recorder) -> None:
    recorder.answers["/1"] = redirect("/1")
    assert "too often" in str(fetch(f"http://a.test:{recorder.port}/1", max_redirects=3))
    assert len(recorder.asked) == 4


def test_the_body_of_a_redirect_is_not_read(recorder: Recorder) -> None:
    sent = 0

    def answer(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.send_response(302)
        handler.send_header("location", "/2")
        handler.end_headers()
        for _ in range(1000):
            sent += handler.wfile.write(bytes(65_536))

    recorder.answers["/1"] = answer
    assert isinstance(fetch(f"http://a.test:{recorder.port}/1"), PageText)
    assert sent < 32 << 20


LITERALS = ["127.1", "0x7f.1", "0177.0.0.1", "2130706433", "0", "localhost", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"]  # fmt: skip


@pytest.mark.parametrize("host", LITERALS)
def test_this_machine_is_refused_however_it_is_written(recorder: Recorder, host: str) -> None:
    found = fetch(f"http://{host}:{recorder.port}/", None, allow_private=False)
    assert isinstance(found, str)
    assert not recorder.asked


# Names that change their meaning.


def test_a_page_is_read_from_the_address_that_was_checked(recorder: Recorder) -> None:
    names = Names(a_test=["127.0.0.1", "169.254.169.254"])
    assert isinstance(fetch(f"http://a.test:{recorder.port}/", names), PageText)
    assert names.asked == ["a.test"], "resolved once, and connected to what that gave"


def test_each_redirect_is_checked_anew(recorder: Recorder) -> None:
    recorder.answers["/1"] = redirect("/2")
    names = Names(a_test=["127.0.0.1", "169.254.169.254"])
    assert "link-local" in str(fetch(f"http://a.test:{recorder.port}/1", names))
    assert recorder.paths == ["/1"]


def test_a_kept_connection_is_checked_for_each_request(recorder: Recorder) -> None:
    names = Names(a_test=["127.0.0.1", "127.0.0.1", "10.0.0.1"])

    async def body() -> None:
        guard = HostGuard(["*"], allow_private=False, resolve=names)
        # The connection is there, as from a time when the name had an allowed address.
        open_guard = HostGuard(["*"], allow_private=True, resolve=names)
        async with mcp_client(
            {}, connect_timeout=5, max_message_bytes=1000, guard=open_guard
        ) as client:
            url = f"http://a.test:{recorder.port}/"
            assert (await client.get(url)).text == "hello"
            open_guard._allow_private = guard._allow_private
            with pytest.raises(httpx2.ConnectError, match="loopback"):
                await client.get(url)
            with pytest.raises(httpx2.ConnectError, match="private"):
                await client.get(url)

    asyncio.run(body())
    assert len(recorder.asked) == 1


@pytest.mark.parametrize("address", ["169.254.169.254", "192.0.0.192", "fd20:ce::254"])
def test_one_bad_address_among_good_ones_refuses_a_name(address: str) -> None:
    async def both(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1", address]

    async def body() -> None:
        guard = HostGuard(["*"], allow_private=True, allow_plain=True, resolve=both)
        with pytest.raises(AddressRefused):
            await guard.addresses("http", "a.test", 80)

    asyncio.run(body())


# MCP servers.


def mcp(use: Callable[[Any], Awaitable[T]], url: str, names: Names, **entry: Any) -> T:
    """What `use` makes of the server at `url`."""
    remote = RemoteServersConfig(
        enabled=True, allow_hosts=["*.test"], allow_private=True, tools_ttl=0.001
    )

    async def body() -> T:
        async with McpServers(McpConfig(remote=remote), resolve=names) as servers:
            tool = McpTool(server_label="far", server_url=url, **entry)
            return await use(servers.check(SessionContext(entry=tool)))

    return asyncio.run(body())


async def list_tools(server: Any) -> str:
    try:
        return str(await server.tools())
    except Exception as error:  # of several kinds, all of which refuse
        return str(error)


def test_an_mcp_server_is_checked_for_each_request_of_a_session(recorder: Recorder) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(500)
        handler.send_header("content-length", "0")
        handler.end_headers()

    recorder.answers["/mcp"] = answer
    # The first answer is for the check before anything is sent, the second for the first request.
    names = Names(a_test=["127.0.0.1", "127.0.0.1", "169.254.169.254"])
    refusal = mcp(list_tools, f"http://a.test:{recorder.port}/mcp", names)
    assert len(recorder.asked) == 1
    assert len(names.asked) >= 3
    assert refusal


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_credentials_of_an_mcp_server_stay_with_its_origin(
    recorder: Recorder, start: Callable[[], Recorder], status: int
) -> None:
    other = start()
    recorder.answers["/mcp"] = redirect(f"http://b.test:{other.port}/mcp", status)
    url = f"http://a.test:{recorder.port}/mcp"
    mcp(list_tools, url, HERE, authorization="secret", headers={"x-key": "secret"})
    assert recorder.asked[0][1]["authorization"] == "Bearer secret"
    assert not other.asked


@pytest.mark.parametrize("to", ["http://meta.test/mcp", "http://169.254.169.254/", "file:///etc/passwd"])  # fmt: skip
def test_an_mcp_server_cannot_redirect_to_a_refused_address(recorder: Recorder, to: str) -> None:
    recorder.answers["/mcp"] = redirect(to, 307)
    assert mcp(list_tools, f"http://a.test:{recorder.port}/mcp", HERE)
    assert set(recorder.paths) == {"/mcp"}


@pytest.mark.parametrize("url", NO_HOSTS)
def test_a_host_that_cannot_be_one_is_no_mcp_server(recorder: Recorder, url: str) -> None:
    async def failure(server: Any) -> Exception | None:
        try:
            await server.tools()
        except Exception as error:
            return error
        return None

    host = url.removeprefix("http://").rstrip("/")
    remote = RemoteServersConfig(
        enabled=True, allow_hosts=["*"], allow_private=True, tools_ttl=0.001
    )

    async def body(server_url: str) -> Exception | None:
        async with McpServers(McpConfig(remote=remote), resolve=resolve) as servers:
            tool = McpTool(server_label="far", server_url=server_url)
            return await failure(servers.check(SessionContext(entry=tool)))

    assert isinstance(asyncio.run(body(f"https://{host}/mcp")), ServerFailure)
    recorder.answers["/mcp"] = redirect(url, 307)
    found = asyncio.run(body(f"http://127.0.0.1:{recorder.port}/mcp"))
    assert isinstance(found, ServerFailure)
    assert recorder.paths


@pytest.mark.slow
def test_the_endpoint_of_an_sse_server_is_on_its_own_origin(
    recorder: Recorder, start: Callable[[], Recorder]
) -> None:
    other = start()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.wfile.write(
            f"event: endpoint\ndata: http://b.test:{other.port}/messages\n\n".encode()
        )
        handler.wfile.flush()
        time.sleep(1)
        handler.close_connection = True

    recorder.answers["/sse"] = answer
    with pytest.raises(ServerFailure):
        mcp(
            lambda server: server.tools(),
            f"http://a.test:{recorder.port}/sse",
            HERE,
            authorization="secret",
        )
    assert not other.asked


# Proxies.

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


def test_proxies_of_the_environment_are_passed_by(
    recorder: Recorder, start: Callable[[], Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = start()
    for name in PROXIES:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert isinstance(fetch(f"http://a.test:{recorder.port}/"), PageText)
    mcp(list_tools, f"http://a.test:{recorder.port}/mcp", HERE)
    assert recorder.asked
    assert not proxy.asked


# Bodies.


def body(
    headers: Mapping[str, str], parts: Callable[[], Iterator[bytes]]
) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in {"content-type": "text/plain", **headers}.items():
            handler.send_header(name, value)
        handler.send_header("connection", "close")
        handler.end_headers()
        for part in parts():
            handler.wfile.write(part)
        handler.close_connection = True

    return answer


def endless() -> Iterator[bytes]:
    while True:
        yield b"x " * 32_768


def slow() -> Iterator[bytes]:
    for _ in range(300):
        yield b"x"
        time.sleep(0.1)


def short() -> Iterator[bytes]:
    yield b"short"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (body({}, endless), "Only the first 100000 bytes"),
        (body({"content-length": "3"}, endless), "xxx"),
        (body({"content-length": str(10**18)}, endless), "Only the first 100000 bytes"),
        (body({"content-length": "1000"}, short), "connection broke"),
        (body({"content-length": "-5"}, short), "connection broke"),
        (body({}, slow), "did not come within 2 seconds"),
        (body({"content-encoding": "gzip"}, short), "compressed"),
        (body({"content-encoding": "br, gzip"}, short), "compressed"),
        (body({"x": "x" * 1_000_000}, short), "connection broke"),
        (body({f"x{n}": "x" * 1000 for n in range(1000)}, short), "connection broke"),
    ],
)
def test_a_body_is_bounded_whatever_is_said_of_it(
    recorder: Recorder, answer: Callable[[BaseHTTPRequestHandler], None], told: str
) -> None:
    recorder.answers["/"] = answer
    limit = 2.0 if "2 seconds" in told else 60.0  # a busy machine takes its time over the others
    found = fetch(f"http://a.test:{recorder.port}/", time_limit=limit, max_page_bytes=100_000)
    text = found if isinstance(found, str) else "".join(found.lines)
    assert told in text.replace(" ", "") + text
    assert len(text) < 200_000
