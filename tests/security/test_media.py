"""Images and sounds of hostile clients and servers: bounded in bytes, pixels, memory and time, and fetched from allowed hosts only."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import signal
import struct
import sys
import threading
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gateway.base.errors import InvalidRequest
from gateway.base.net.guard import resolve
from gateway.config import MediaConfig
from gateway.media import encoded
from gateway.media.images import read_image
from gateway.media.reader import MediaReader
from gateway.media.refused import MediaRefused
from gateway.media.sounds import read_sound
from gateway.plugins.protocols import Media, MediaSource
from gateway.wire.content import InputImage
from gateway.wire.items import Message
from tests.security.hostile_images import (
    huge_gif,
    huge_gif_frame,
    huge_jpeg,
    huge_webp,
    picture,
    pixels,
    png,
)

T = TypeVar("T")
MIB: Final = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def data_url(data: bytes) -> MediaSource:
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    return MediaSource(kind="image", url=url, detail="auto")


def run(use: Callable[[MediaReader], Awaitable[T]], *, names: Any = resolve, **keys: Any) -> T:
    async def body() -> T:
        async with MediaReader(MediaConfig(**keys), resolve=names) as reader:
            return await use(reader)

    return asyncio.run(body())


async def refusal(reader: MediaReader, source: MediaSource) -> MediaRefused:
    with pytest.raises(MediaRefused) as refused:
        await reader.read(source, "anna")
    return refused.value


def peak(reader: MediaReader) -> int:
    """The most memory that a helper process has had, in bytes."""
    sizes = [0]
    for pid in reader._pool.process_ids:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM"):
                sizes.append(int(line.split()[1]) * 1024)
    return max(sizes)


# Files that are small, and much larger when they are decoded.


@linux
@pytest.mark.parametrize(
    "make",
    [
        lambda: png(pixels(30_000, 30_000), width=30_000, height=30_000),
        lambda: png((b"IDAT", zlib.compress(b"")), width=2**31 - 1, height=2**31 - 1),
        lambda: png((b"IDAT", zlib.compress(b"")), width=40_000_001, height=1),
        huge_jpeg,
        huge_gif,
        huge_gif_frame,
        huge_webp,
    ],
    ids=["PNG", "largest PNG", "wide PNG", "JPEG", "GIF", "GIF frame", "WebP"],
)  # fmt: skip
def test_too_many_pixels_are_refused_before_they_are_decoded(make: Callable[[], bytes]) -> None:
    file = make()
    assert len(file) < MIB

    async def use(reader: MediaReader) -> None:
        refused = await refusal(reader, data_url(file))
        assert refused.code in ("image_too_large", "image_parse_error")
        assert "pixels" in refused.message or file[:4] == b"GIF8"
        assert 0 < peak(reader) < 150 * MIB
        assert (await reader.read(data_url(picture()), "anna")).width == 64, "the process lives"

    run(use)


@cache
def bomb(size: int) -> bytes:
    return zlib.compress(bytes(size), 1)


@linux
@pytest.mark.parametrize(
    "chunks",
    [
        lambda: [(b"zTXt", b"Comment\0\0" + bomb(200 * MIB))],
        lambda: [(b"iTXt", b"Comment\0\1\0\0\0" + bomb(200 * MIB))],
        lambda: [(b"iCCP", b"profile\0\0" + bomb(200 * MIB))],
        lambda: [(b"zTXt", b"Comment%d\0\0" % number + bomb(MIB - 1)) for number in range(150)],
    ],
    ids=["zTXt", "iTXt", "iCCP", "many zTXt"],
)
def test_metadata_that_decompresses_to_much_takes_bounded_memory(
    chunks: Callable[[], list[tuple[bytes, bytes]]],
) -> None:
    file = png(*chunks(), pixels(8, 8))
    assert len(file) < 3 * MIB

    async def use(reader: MediaReader) -> None:
        with suppress(MediaRefused):  # or it is read, without its metadata
            await reader.read(data_url(file), "anna")
        assert 0 < peak(reader) < 150 * MIB

    run(use)


@linux
@pytest.mark.parametrize("form", ["PNG", "WEBP"])
@pytest.mark.slow
def test_the_largest_allowed_image_is_decoded_in_bounded_memory(form: str) -> None:
    image = Image.new("RGBA", (5000, 3990), (10, 20, 30, 128))
    written = io.BytesIO()
    image.save(written, form, lossless=True, compress_level=1)

    async def use(reader: MediaReader) -> None:
        found = await reader.read(data_url(written.getvalue()), "anna")
        assert found.width == 2048
        assert peak(reader) < 24 * 20_000_000 + 100 * MIB

    run(use, max_pixels=20_000_000, decode_seconds=60)


@linux
@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
@pytest.mark.slow
def test_more_memory_than_allowed_is_a_refusal(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"PROCESS": 220 * MIB, "PIXEL": 0, "WRITTEN": 0}.items():
        monkeypatch.setattr(f"gateway.media.reader._{name}_BYTES", size)
    monkeypatch.setattr("gateway.media.reader._SOUND_COPIES", 0)
    written = io.BytesIO()
    Image.new("RGB", (4500, 4500)).save(written, form, quality=1)

    async def use(reader: MediaReader) -> None:
        refused = await refusal(reader, data_url(written.getvalue()))
        assert refused.code in ("invalid_image", "image_parse_error")
        assert (await reader.read(data_url(picture()), "anna")).width == 64

    run(use, max_bytes=2 * MIB, max_side=8000, decode_seconds=60)


# Broken files.

FILES: Final = {
    "PNG": picture("PNG"),
    "JPEG": picture("JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"),
    "progressive JPEG": picture("JPEG", progressive=True),
    "GIF": picture("GIF"),
    "WebP": picture("WEBP"),
    "lossless WebP": picture("WEBP", lossless=True),
}  # fmt: skip


@given(st.sampled_from(sorted(FILES)), st.floats(0, 1))
@settings(max_examples=150)
def test_a_truncated_file_is_refused_or_was_whole(name: str, share: float) -> None:
    file = FILES[name]
    cut = file[: int(len(file) * share)]
    try:
        found = read_image(cut, 10_000_000, 1000)
    except MediaRefused as refused:
        code = refused.code
    else:
        assert found == read_image(file, 10_000_000, 1000)
        return
    assert code in ("image_parse_error", "invalid_image_format")


@given(
    st.sampled_from(sorted(FILES)),
    st.lists(
        st.tuples(st.floats(0, 0.999), st.binary(min_size=1, max_size=8)), min_size=1, max_size=5
    ),
)
@settings(max_examples=300)
def test_changed_bytes_are_an_image_or_a_refusal(
    name: str, changes: list[tuple[float, bytes]]
) -> None:
    file = bytearray(FILES[name])
    for place, data in changes:
        at = int(place * len(file))
        file[at : at + len(data)] = data
    try:
        found, _, width, height = read_image(bytes(file), 1_000_000, 500)
    except MediaRefused:
        return
    assert max(width, height) <= 500
    assert Image.open(io.BytesIO(found)).size == (width, height)


@given(st.binary(max_size=200), st.floats(0, 1))
def test_bytes_that_begin_like_a_sound_are_one_or_refused(data: bytes, share: float) -> None:
    with suppress(MediaRefused):
        read_sound(b"RIFF\x40\0\0\0WAVE" + data, 10)
    start = b"RIFF\x40\0\0\0WAVEfmt \x10\0\0\0"
    with suppress(MediaRefused):
        read_sound(start + data[: int(len(data) * share)] + b"data" + data, 10)


# Work that takes long.


def test_decoding_has_a_deadline_and_others_go_on() -> None:
    slow = data_url(png(pixels(9000, 9000), width=9000, height=9000))

    async def use(reader: MediaReader) -> None:
        refused = await refusal(reader, slow)
        assert refused.code == "invalid_image"
        assert "0.05 seconds" in refused.message
        assert not reader._pool.process_ids, "killed"

    run(use, max_pixels=400_000_000, decode_seconds=0.05)


def test_a_sound_of_many_chunks_has_the_same_deadline() -> None:
    chunks = b"junk\0\0\0\0" * MIB
    file = b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WAVE" + chunks
    data = base64.b64encode(file).decode()

    async def use(reader: MediaReader) -> None:
        refused = await refusal(reader, MediaSource(kind="audio", data=data, detail="wav"))
        assert refused.code == "invalid_value"
        assert "0.05 seconds" in refused.message

    run(use, decode_seconds=0.05)


def test_a_small_mp3_of_many_hours_is_refused_before_it_is_decoded() -> None:
    pytest.importorskip("miniaudio", reason="miniaudio has no wheel for this machine")
    tone = (Path(__file__).parents[1] / "data/sounds/tone.mp3").read_bytes()
    data = base64.b64encode(tone[144:] * 8000).decode()

    async def use(reader: MediaReader) -> None:
        refused = await refusal(reader, MediaSource(kind="audio", data=data, detail="mp3"))
        assert refused.code == "invalid_value"
        assert "longer than 600 seconds" in refused.message

    run(use, decode_seconds=60)


def test_a_decoder_that_dies_is_a_refusal() -> None:
    slow = data_url(png(pixels(9000, 9000), width=9000, height=9000))

    async def use(reader: MediaReader) -> None:
        reading = asyncio.ensure_future(refusal(reader, slow))
        while not reader._pool.process_ids:  # noqa: ASYNC110 (a pool tells nobody)
            await asyncio.sleep(0.001)
        for pid in reader._pool.process_ids:
            os.kill(pid, signal.SIGKILL)
        assert (await reading).code == "invalid_image"
        assert (await reader.read(data_url(picture()), "anna")).width == 64

    run(use, max_pixels=400_000_000)


def test_nothing_is_decoded_in_the_gateways_process(monkeypatch: pytest.MonkeyPatch) -> None:
    file, threads = picture(), list[int]()
    decode = encoded.decode_base64

    def noted(text: str, max_bytes: int, start: int) -> bytes:
        threads.append(threading.get_ident())
        return decode(text, max_bytes, start)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("decoded in the gateway's process")

    monkeypatch.setattr("gateway.media.reader.decode_base64", noted)
    monkeypatch.setattr(Image, "open", fail)
    monkeypatch.setattr("wave.open", fail)
    found = run(lambda reader: reader.read(data_url(file), "anna"))
    assert found.width == 64
    assert threads
    assert threading.get_ident() not in threads


def test_many_parts_are_refused_before_any_is_read() -> None:
    part = InputImage(image_url=data_url(picture()).url)
    items = [Message(role="user", content=[part] * 20_000)]

    async def use(reader: MediaReader) -> None:
        with pytest.raises(InvalidRequest) as refused:
            await reader.resolver("anna").resolve(items)
        assert refused.value.param == "input[0].content[64]"
        assert not reader._pool.process_ids

    run(use)


def test_many_images_are_decoded_by_few_processes() -> None:
    parts = [InputImage(image_url=data_url(picture(size=(40 + n, 40))).url) for n in range(30)]
    items = [Message(role="user", content=parts)]

    async def use(reader: MediaReader) -> None:
        found = await asyncio.gather(
            *(reader.resolver(owner).resolve(items) for owner in ("anna", "bert", "carl"))
        )
        assert all(len(media) == 30 for media in found)
        assert len(reader._pool.process_ids) <= 2

    run(use)


# Fetching.


class Server:
    """A web server that notes the head of each request, and answers by its path."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.sent = 0
        self.port = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def paths(self) -> list[str]:
        return [head.split(b" ")[1].decode() for head in self.heads]

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            await self._answer(head.split(b" ")[1].decode(), writer)
        writer.close()

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        name, _, rest = path.removeprefix("/").partition("/")
        kind, length, body = "image/png", "", picture()
        match name:
            case "to":
                target = base64.urlsafe_b64decode(rest).decode().replace("PORT", str(self.port))
                writer.write(b"HTTP/1.1 302 Found\r\nset-cookie: a=b\r\n")
                writer.write(f"location: {target}\r\ncontent-length: 0\r\n\r\n".encode("latin-1"))
                return
            case "to-long":
                writer.write(b"HTTP/1.1 302 Found\r\nlocation: /" + b"x" * 5000 + b"\r\n\r\n")
                return
            case "type":
                kind = base64.urlsafe_b64decode(rest).decode()
            case "status":
                writer.write(f"HTTP/1.1 {rest} Some\r\ncontent-length: 0\r\n\r\n".encode())
                return
            case "endless" | "endless-redirect" | "drip":
                status = "302 Found\r\nlocation: /fine" if "redirect" in name else "200 OK"
                kind = "text/event-stream" if "redirect" in name else "image/png"
                writer.write(f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n\r\n".encode())
                while True:
                    writer.write(b"x" * (1 if name == "drip" else 65_536))
                    self.sent += 65_536
                    await writer.drain()
                    await asyncio.sleep(0.01 if name == "drip" else 0)
            case "silent":
                await asyncio.sleep(3600)
            case "long":
                length = "99999999999"
            case "short":
                length = str(len(body) + 10)
            case "zipped":
                body = zlib.compress(bytes(10 * MIB))
                kind += "\r\ncontent-encoding: deflate"
            case "head":
                writer.write(b"HTTP/1.1 200 OK\r\n")
                while True:
                    writer.write(b"x-filler: " + b"x" * 1000 + b"\r\n")
                    await writer.drain()
                    await asyncio.sleep(0)
            case "nonsense":
                writer.write(b"\0\xff\0 I am no web server\r\n\r\n")
                return
            case _:
                pass
        length = length or str(len(body))
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n".encode())  # fmt: skip
        writer.write(body)
        await writer.drain()


class Names:
    """A resolver. A name with several answers gives one after the other, the last for ever."""

    def __init__(self, **answers: Sequence[str]) -> None:
        self._answers = {name.replace("_", "."): list(each) for name, each in answers.items()}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        answers = self._answers.get(host)
        if answers is None:
            return [host]  # an address
        return [answers.pop(0) if len(answers) > 1 else answers[0]]


LOCAL: Final = {"a_test": ["127.0.0.1"], "b_test": ["127.0.0.1"], "meta_test": ["169.254.169.254"]}


def fetched(
    url: str, *, check: Callable[[Server], None] | None = None, names: Any = None, **keys: Any
) -> Media | MediaRefused:
    """The image at `url`, or why it is refused. `HOST` in it is that of the test's server."""
    config = {"allow_hosts": ["*"], "allow_private": True, "fetch_seconds": 20.0, **keys}

    async def use(reader: MediaReader) -> Media | MediaRefused:
        async with Server() as server:
            written = url.replace("HOST", f"a.test:{server.port}").replace("PORT", str(server.port))
            try:
                return await reader.read(MediaSource(kind="image", url=written), "anna")
            except MediaRefused as refused:
                return refused
            finally:
                if check is not None:
                    check(server)

    return run(use, names=names or Names(**LOCAL), **config)


def refused(url: str, **keys: Any) -> MediaRefused:
    found = fetched(url, **keys)
    assert isinstance(found, MediaRefused), found
    assert len(found.message) < 250
    return found


def to(target: str, then: str = "") -> str:
    return f"http://HOST/to/{base64.urlsafe_b64encode(target.encode()).decode()}{then}"


def test_an_image_is_fetched_with_the_gateways_own_headers() -> None:
    def check(server: Server) -> None:
        [head] = server.heads
        lines = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:] if line]
        assert sorted(lines) == [b"accept", b"accept-encoding", b"connection", b"host", b"user-agent"]  # fmt: skip
        assert b"a.test" in head

    found = fetched("http://HOST/fine", check=check)
    assert isinstance(found, Media)
    assert found.width == 64


def test_a_redirect_brings_nothing_along() -> None:
    def check(server: Server) -> None:
        assert len(server.heads) == 2
        assert b"cookie" not in server.heads[1].lower()
        assert b"referer" not in server.heads[1].lower()
        assert b"host: b.test" in server.heads[1].lower()

    assert isinstance(fetched(to("http://b.test:PORT/fine"), check=check), Media)


FORBIDDEN: Final = [
    ("http://meta.test/", "link-local"),
    ("http://169.254.169.254/latest", "link-local"),
    ("http://[fd00:ec2::254]/", "metadata"),
    ("http://[::ffff:168.63.129.16]/", "metadata"),
    ("http://user:secret@a.test:PORT/", "user or a password"),
    ("file:///etc/passwd", "not the http(s) URL"),
    ("ftp://a.test/", "not the http(s) URL"),
    ("gopher://a.test:PORT/_x", "not the http(s) URL"),
    ("http://a.test:99999/", "not the http(s) URL"),
    ("http://denied.test:PORT/", "not on this server's list"),
]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        *FORBIDDEN,
        ("http:///a.png", "not the http(s) URL"),
        ("http://a.test:PORT/" + "x" * 5000, "not the http(s) URL"),
    ],
)
def test_a_forbidden_url_is_not_connected_to(url: str, why: str) -> None:
    def check(server: Server) -> None:
        assert not server.heads

    error = refused(url, check=check, deny_hosts=["denied.test"])
    assert why in error.message
    assert error.code == "invalid_image_url"


@pytest.mark.parametrize(("url", "why"), FORBIDDEN)
def test_a_redirect_leads_where_a_url_may_or_nowhere(url: str, why: str) -> None:
    def check(server: Server) -> None:
        assert len(server.heads) == 1

    error = refused(to(url), check=check, deny_hosts=["denied.test"])
    assert why in error.message or "connection broke" in error.message


NO_HOSTS: Final = ["http://a..example.com/x.png", "http://" + "a" * 64 + ".example.com/", "http://xn--a..example.com/"]  # fmt: skip


@pytest.mark.parametrize("url", NO_HOSTS)
@pytest.mark.parametrize("redirected", [False, True])
def test_a_host_that_cannot_be_one_is_the_clients_mistake(url: str, redirected: bool) -> None:
    names = Names(**LOCAL)

    async def look_up(host: str, port: int) -> Sequence[str]:
        return await names(host, port) if host == "a.test" else await resolve(host, port)

    error = refused(to(url) if redirected else url, names=look_up)
    assert "could not be downloaded" in error.message


@pytest.mark.parametrize(
    ("denied", "url"),
    [
        ("xn--bcher-kva.example", "http://bücher.example:PORT/fine"),
        ("bücher.example", "http://xn--bcher-kva.example:PORT/fine"),
        ("127.0.0.1", "http://127.1:PORT/fine"),
        ("127.0.0.1", "http://2130706433:PORT/fine"),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]:PORT/fine"),
        ("127.0.0.1", "http://a.test:PORT/fine"),
    ],
)
def test_a_denied_host_is_denied_however_it_is_written(denied: str, url: str) -> None:
    def check(server: Server) -> None:
        assert not server.heads

    assert "not on this server's list" in refused(url, check=check, deny_hosts=[denied]).message


def test_a_redirect_to_a_long_url_is_not_followed() -> None:
    assert "not the http(s) URL" in refused("http://HOST/to-long").message


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "localhost", "[::1]", "[::]", "[::ffff:127.0.0.1]", "10.0.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0"])  # fmt: skip
def test_private_addresses_are_refused_unless_they_are_allowed(host: str) -> None:
    def check(server: Server) -> None:
        assert not server.heads

    refused(f"http://{host}:PORT/fine", check=check, allow_private=False, names=resolve)


def test_a_redirect_to_a_private_address_is_refused() -> None:
    """The first address passes as if it were public; that of the redirect is private."""

    async def use(reader: MediaReader) -> None:
        async with Server() as server:
            guard = reader._fetcher._guard  # type: ignore[union-attr]
            allowed = guard.addresses

            async def first(scheme: str, host: str, port: int) -> Sequence[str]:
                if not server.heads:
                    return ["127.0.0.1"]
                return await allowed(scheme, host, port)

            guard.addresses = first  # type: ignore[method-assign]
            target = to(f"http://b.test:{server.port}/fine")
            url = target.replace("HOST", f"a.test:{server.port}")
            error = await refusal(reader, MediaSource(kind="image", url=url))
            assert "private address" in error.message
            assert error.code == "invalid_image_url"
            assert len(server.heads) == 1

    run(use, names=Names(a_test=["127.0.0.1"], b_test=["10.0.0.1"]), allow_hosts=["*"])


def test_a_name_is_resolved_anew_for_each_redirect() -> None:
    names = Names(a_test=["127.0.0.1", "169.254.169.254"])
    assert "link-local" in refused(to("/fine"), names=names).message


def test_only_hosts_on_the_list_are_fetched_from() -> None:
    error = refused("http://HOST/fine", allow_hosts=["b.test", "*.example.com"])
    assert "not on this server's list" in error.message
    assert isinstance(fetched("http://HOST/fine", allow_hosts=["a.test"]), Media)


def test_without_a_list_nothing_is_fetched() -> None:
    error = refused("http://HOST/fine", allow_hosts=[])
    assert error.code == "invalid_image_url"
    assert "media.allow_hosts" in error.message


def test_redirects_come_to_an_end() -> None:
    def check(server: Server) -> None:
        assert len(server.heads) == 4

    target = base64.urlsafe_b64encode(b"/again").decode()
    path = f"/to/{target}"
    for _ in range(6):
        path = "/to/" + base64.urlsafe_b64encode(path.encode()).decode()
    error = refused(f"http://HOST{path}", check=check, max_redirects=3)
    assert "too often" in error.message


@pytest.mark.parametrize("path", ["endless", "long"])
def test_a_body_is_read_up_to_the_limit(path: str) -> None:
    def check(server: Server) -> None:
        assert server.sent < 50 * MIB

    error = refused(f"http://HOST/{path}", check=check, max_bytes=MIB)
    assert error.code == "image_file_too_large"


def test_the_body_of_a_redirect_is_not_read() -> None:
    assert isinstance(fetched("http://HOST/endless-redirect", max_bytes=MIB), Media)


@pytest.mark.parametrize("path", ["silent", "drip"])
def test_a_slow_server_meets_the_deadline(path: str) -> None:
    error = refused(f"http://HOST/{path}", fetch_seconds=0.2)
    assert error.code == "failed_to_download_image"
    assert "0.2 seconds" in error.message


@pytest.mark.parametrize("path", ["short", "zipped", "head", "nonsense", "status/404", "status/500", "status/206", "status/204", "status/304"])  # fmt: skip
def test_a_server_that_fails_is_told(path: str) -> None:
    error = refused(f"http://HOST/{path}")
    assert error.code in ("failed_to_download_image", "image_parse_error")


@pytest.mark.parametrize("kind", ["text/html", "application/pdf", "text/event-stream", "x" * 2000])
def test_a_body_of_another_type_is_not_read(kind: str) -> None:
    path = base64.urlsafe_b64encode(kind.encode()).decode()
    assert refused(f"http://HOST/type/{path}").code == "unsupported_image_media_type"


@pytest.mark.parametrize("kind", ["image/jpeg", "application/octet-stream", "IMAGE/PNG; a=b"])
def test_the_type_of_an_image_does_not_matter(kind: str) -> None:
    path = base64.urlsafe_b64encode(kind.encode()).decode()
    assert isinstance(fetched(f"http://HOST/type/{path}"), Media)


def test_fetches_of_one_owner_are_few_and_do_not_hold_up_others() -> None:
    async def use(reader: MediaReader) -> None:
        async with Server() as server:
            sources = [
                MediaSource(kind="image", url=f"http://a.test:{server.port}/silent/{n}")
                for n in range(30)
            ]
            waiting = [asyncio.ensure_future(reader.read(each, "anna")) for each in sources]
            while len(server.heads) < 8:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            fine = MediaSource(kind="image", url=f"http://a.test:{server.port}/fine")
            assert (await reader.read(fine, "bert")).width == 64
            assert (await reader.read(data_url(picture()), "anna")).width == 64
            assert len(server.heads) == 9
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    run(use, names=Names(**LOCAL), allow_hosts=["*"], allow_private=True)
