"""Where Redis may be, and what happens when a connection to it breaks."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from redis.asyncio import Redis

from gateway.errors import ConfigurationError, StoreUnavailable
from gateway.testing.redis_process import RedisProcess, free_port, redis_server
from gateway.testing.store_records import message, record
from gateway_redis import RedisConfig, open_redis
from gateway_redis.location import shown
from gateway_redis.server import through_outage
from gateway_redis.store import RedisStore

pytestmark = pytest.mark.anyio


async def works(store: RedisStore) -> None:
    """Whether all kinds of commands come through."""
    kept = record(status="in_progress", streamed=True)
    await store.put(kept)
    reading = asyncio.create_task(_events(store, kept.id))
    await asyncio.sleep(0.05)
    await store.append_events(kept.id, [b"0"])
    await store.append_events(kept.id, [b"1"], last=True)
    async with asyncio.timeout(10):
        assert await reading == [b"0", b"1"]
    assert await store.get(kept.id) is not None
    assert await store.delete(kept.id)


async def _events(store: RedisStore, response_id: str) -> list[bytes]:
    async with aclosing(store.read_events(response_id)) as log:
        return [event async for batch in log for event in batch]


async def test_over_a_unix_socket(start_redis, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    start_redis("--unixsocket", str(path))
    async with open_redis(RedisConfig(url=f"unix://{path}?db=2")) as store:
        await works(store)


async def test_with_a_password(start_redis) -> None:
    redis = start_redis("--requirepass", "se/cret")
    address = f"127.0.0.1:{redis.port}"
    for config in (
        RedisConfig(url=f"redis://:se%2Fcret@{address}"),
        RedisConfig(url=f"redis://default:other@{address}", password="se/cret"),
    ):
        async with open_redis(config) as store:
            await works(store)
    for wrong in (f"redis://:other@{address}", f"redis://{address}"):
        with pytest.raises(ConfigurationError) as told:
            async with open_redis(RedisConfig(url=wrong)):
                pass
        assert "other" not in str(told.value)
        assert address in str(told.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that vouches for itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "redis")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "redis.pem"
    file.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other side has gone
    finally:
        writer.close()


class Door:
    """Stands between a client and Redis: it may speak TLS, and may break all connections."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._context = context
        self._open: set[asyncio.StreamWriter] = set()
        self._shut = False
        self.port = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Door]:
        server = await asyncio.start_server(self._enter, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.shut()
            await asyncio.sleep(0.05)

    def shut(self) -> None:
        """Break all connections, and let nobody in."""
        self._shut = True
        for writer in self._open:
            writer.transport.abort()

    def unlock(self) -> None:
        self._shut = False

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._shut:
            writer.transport.abort()
            return
        inner_reader, inner = await asyncio.open_connection("127.0.0.1", self._port)
        self._open |= {writer, inner}
        try:
            await asyncio.gather(_forward(reader, inner), _forward(inner_reader, writer))
        finally:
            self._open -= {writer, inner}


async def test_over_tls(redis_process: RedisProcess, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with Door(redis_process.port, context).opened() as door:
        address = f"rediss://127.0.0.1:{door.port}"
        async with open_redis(RedisConfig(url=f"{address}?ssl_ca_certs={certificate}")) as store:
            await works(store)
        with pytest.raises(ConfigurationError, match="certificate"):
            async with open_redis(RedisConfig(url=address)):
                pass


@pytest.fixture
def sentinels(start_redis, tmp_path: Path) -> Iterator[tuple[str, RedisProcess, RedisProcess]]:
    """The URL of a service that one sentinel watches, its primary, and the replica of that."""
    primary = start_redis()
    replica = start_redis("--replicaof", "127.0.0.1", str(primary.port))
    port = free_port()
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"port {port}\nsentinel monitor service 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds service 500\nsentinel failover-timeout service 3000\n"
    )
    process = subprocess.Popen([redis_server(), str(file), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        yield f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/service/0", primary, replica
    finally:
        process.kill()
        process.wait()


async def test_a_failover_by_sentinels_is_followed(
    sentinels: tuple[str, RedisProcess, RedisProcess],
) -> None:
    url, primary, replica = sentinels
    for _ in range(100):  # until the sentinel has found the replica
        async with Redis(port=primary.port) as client:
            if (await client.info("replication"))["connected_slaves"] == 1:
                break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)

    async def opened() -> RedisStore:
        return await opening.__aenter__()

    opening = open_redis(RedisConfig(url=url, timeout=2, outage=20))
    store = await opened()
    try:
        await works(store)
        kept = record(status="in_progress", streamed=True)
        await store.put(kept)
        reading = asyncio.create_task(_events(store, kept.id))
        await store.append_events(kept.id, [b"0"])
        await asyncio.sleep(0.3)
        primary.kill()
        async with asyncio.timeout(40):
            await store.append_events(kept.id, [b"1"])
            await store.append_events(kept.id, [b"2"], last=True)
            assert await reading == [b"0", b"1", b"2"]
        assert replica.ask("ROLE") == b"*3"
    finally:
        await opening.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("redis+other://127.0.0.1", "redis+other"),
        ("redis+sentinel://127.0.0.1:1", "service"),
        ("redis+cluster://", "host"),
        ("redis://ada:secret@127.0.0.1:nonsense/0", "port"),
        ("", "redis://"),
    ],
)
async def test_a_url_that_is_none_is_a_mistake_in_the_configuration(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        async with open_redis(RedisConfig(url=url)):
            pass
    assert told in str(error.value)
    assert "[stores.redis]" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_url_is_shown_without_secrets() -> None:
    assert shown("rediss://u:p@h:1/0?ssl_password=x") == "rediss://h:1/0"
    assert shown("redis+sentinel://u:p@a:1,b:2/s") == "redis+sentinel://a:1,b:2/s"


async def test_nobody_there_is_told_at_once() -> None:
    begin = time.monotonic()
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        async with open_redis(RedisConfig(url=f"redis://127.0.0.1:{free_port()}")):
            pass
    assert time.monotonic() - begin < 2.5


async def test_nothing_that_was_asked_is_lost_with_a_connection(
    redis_process: RedisProcess,
) -> None:
    """Requests to cancel, and events, while the reader's connection is broken."""
    async with (
        Door(redis_process.port).opened() as door,
        open_redis(RedisConfig(url=f"redis://127.0.0.1:{door.port}")) as reader,
        open_redis(RedisConfig(url=redis_process.url)) as writer,
    ):
        kept = record(status="in_progress", streamed=True)
        await writer.put(kept)
        async with aclosing(reader.cancel_requests()) as requests:
            asked = asyncio.create_task(anext(requests))
            following = asyncio.create_task(_events(reader, kept.id))
            await writer.append_events(kept.id, [b"0"])
            await asyncio.sleep(0.2)
            door.shut()
            await writer.request_cancel(kept.id)
            await writer.append_events(kept.id, [b"1"])
            with pytest.raises(StoreUnavailable, match="store: false"):
                await reader.health()
            await asyncio.sleep(0.3)
            door.unlock()
            async with asyncio.timeout(10):
                assert await asked == kept.id
            await writer.append_events(kept.id, [b"2"], last=True)
            async with asyncio.timeout(10):
                assert await following == [b"0", b"1", b"2"]
        await reader.health()


async def test_what_was_done_although_its_answer_was_lost_is_done_once(
    redis_process: RedisProcess,
) -> None:
    """Connections break all the time: each event is there once, and each change succeeds."""
    config = {"outage": 20.0, "timeout": 2.0}
    async with (
        Door(redis_process.port).opened() as door,
        open_redis(RedisConfig(url=f"redis://127.0.0.1:{door.port}", **config)) as store,
    ):
        kept = [record(status="queued", streamed=True) for _ in range(20)]
        for each in kept:
            await store.put(each)
        done = asyncio.Event()

        async def disturb() -> None:
            while not done.is_set():
                await asyncio.sleep(0.02)
                door.shut()
                door.unlock()

        disturbing = asyncio.create_task(disturb())

        async def write(response_id: str) -> None:
            for number in range(40):
                await store.append_events(response_id, [b"%d" % number])
            ended = record(
                response_id=response_id, streamed=True, output=[message("assistant", "x")]
            )
            assert await store.advance(ended, expected=("queued",))
            await store.append_events(response_id, [b"40"], last=True)

        async with asyncio.timeout(60):
            await asyncio.gather(*(write(each.id) for each in kept))
        done.set()
        await disturbing
        for each in kept:
            events = await through_outage(lambda each=each: _events(store, each.id), seconds=5)
            assert events == [b"%d" % number for number in range(41)]


async def test_a_full_redis_is_one_that_is_away(start_redis) -> None:
    redis = start_redis("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    async with open_redis(RedisConfig(url=redis.url, outage=0)) as store:
        with pytest.raises(StoreUnavailable):
            for _ in range(20):
                await store.put(record(output=[message("assistant", "x" * 1_000_000)]))
        await store.health()


async def test_a_replica_that_may_not_write_is_one_that_is_away(start_redis) -> None:
    primary = start_redis()
    replica = start_redis("--replicaof", "127.0.0.1", str(primary.port))
    async with open_redis(RedisConfig(url=replica.url, outage=0)) as store:
        with pytest.raises(StoreUnavailable):
            await store.put(record())
