"""Where Redis may be, and what happens when a connection to it breaks."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.sdk.configuration import without_credentials
from gateway.sdk.stores import through_outage
from gateway_redis import RedisConfig, open_redis
from gateway_redis.store import RedisStore
from gateway_testing.free_ports import free_port
from gateway_testing.redis_process import RedisProcess, redis_server
from gateway_testing.store_records import message, record
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


def patient(**config: Any) -> RedisConfig:
    """A configuration that gives a slow machine time to connect."""
    return RedisConfig(**{"connect_timeout": 30.0, **config})


async def works(store: RedisStore) -> None:
    """Whether all kinds of commands come through."""
    kept = record(status="in_progress", streamed=True)
    await store.put(kept)
    reading = asyncio.create_task(_events(store, kept.id))
    await asyncio.sleep(0.05)
    await store.append_events(kept.id, [b"0"])
    await store.append_events(kept.id, [b"1"], last=True)
    async with asyncio.timeout(60):
        assert await reading == [b"0", b"1"]
    assert await store.get(kept.id) is not None
    assert await store.delete(kept.id)


async def _events(store: RedisStore, response_id: str) -> list[bytes]:
    async with aclosing(store.read_events(response_id)) as log:
        return [event async for batch in log for event in batch]


async def _follow(store: RedisStore, response_id: str, events: list[bytes]) -> None:
    """Add the events of a response to `events`, until its end."""
    async for batch in store.read_events(response_id):
        events.extend(batch)


async def test_over_a_unix_socket(start_redis, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    start_redis("--unixsocket", str(path))
    async with open_redis(patient(url=f"unix://{path}?db=2")) as store:
        await works(store)


async def test_with_a_password(start_redis) -> None:
    redis = start_redis("--requirepass", "se/cret")
    address = f"127.0.0.1:{redis.port}"
    for config in (
        patient(url=f"redis://:se%2Fcret@{address}"),
        patient(url=f"redis://default:other@{address}", password="se/cret"),
    ):
        async with open_redis(config) as store:
            await works(store)
    for wrong in (f"redis://:other@{address}", f"redis://{address}"):
        with pytest.raises(ConfigurationError) as told:
            async with open_redis(patient(url=wrong)):
                pass
        assert "other" not in str(told.value)
        assert address in str(told.value)


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        ("-@scripting", "scripts"),
        ("-eval -evalsha", "scripts"),
        ("resetkeys ~other*", "litegate*"),
        ("-@write", "write"),
    ],
)
async def test_a_user_with_too_few_rights_is_told_at_the_start(
    start_redis, rights: str, said: str
) -> None:
    redis = start_redis()
    async with Redis.from_url(redis.url) as admin:
        await admin.execute_command(*f"ACL SETUSER ada on >pw ~* &* +@all {rights}".split())
    with pytest.raises(ConfigurationError) as told:
        async with open_redis(patient(url=redis.url, username="ada", password="pw")):
            pass
    message = str(told.value)
    assert said in message
    assert "ACL SETUSER" in message
    assert "pw" not in message.replace("password", "")


async def test_the_rights_of_the_readme_are_enough(start_redis) -> None:
    redis = start_redis()
    rights = "on >pw ~litegate* +@all -@admin -@dangerous +info"
    async with Redis.from_url(redis.url) as admin:
        await admin.execute_command("ACL", "SETUSER", "ada", *rights.split())
    async with open_redis(patient(url=redis.url, username="ada", password="pw")) as store:
        await works(store)
        await store.health()


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
        async with open_redis(patient(url=f"{address}?ssl_ca_certs={certificate}")) as store:
            await works(store)
        with pytest.raises(ConfigurationError, match="certificate"):
            async with open_redis(patient(url=address)):
                pass


async def _caught_up(primary: RedisProcess) -> bool:
    """Whether the replica has all that the primary has."""
    async with Redis(port=primary.port) as client:
        told = await client.info("replication")
    replica = told.get("slave0", {})
    return bool(
        replica.get("state") == "online" and replica["offset"] == told["master_repl_offset"]
    )


async def _sentinel_knows_the_replica(port: int) -> bool:
    try:
        async with Redis(port=port, decode_responses=True) as client:
            known = await client.execute_command("SENTINEL", "REPLICAS", "service")
    except RedisConnectionError:
        return False
    told = [
        each if isinstance(each, dict) else dict(zip(each[::2], each[1::2], strict=True))
        for each in known
    ]
    return bool(
        told and told[0]["flags"] in ("slave", {"slave"}) and told[0]["master-link-status"] == "ok"
    )


@pytest.fixture
def sentinels(start_redis, tmp_path: Path) -> Iterator[tuple[int, RedisProcess, RedisProcess]]:
    """The port of a sentinel that watches a service, its primary, and the replica of that."""
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
        yield port, primary, replica
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
async def test_a_failover_by_sentinels_is_followed(
    sentinels: tuple[int, RedisProcess, RedisProcess],
) -> None:
    port, primary, replica = sentinels
    url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/service/0"
    await wait_until_async(lambda: _sentinel_knows_the_replica(port), "the sentinel has found it")

    async def opened() -> RedisStore:
        return await opening.__aenter__()

    opening = open_redis(patient(url=url, timeout=10, outage=60))
    store = await opened()
    try:
        await works(store)
        kept = record(status="in_progress", streamed=True)
        await store.put(kept)
        reading = asyncio.create_task(_events(store, kept.id))
        await store.append_events(kept.id, [b"0"])
        await wait_until_async(lambda: _caught_up(primary), "the replica has the event")
        primary.kill()
        async with asyncio.timeout(120):
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
        async with open_redis(patient(url=url)):
            pass
    assert told in str(error.value)
    assert "[stores.redis]" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_url_is_shown_without_secrets() -> None:
    assert without_credentials("rediss://u:p@h:1/0?ssl_password=x") == "rediss://h:1/0"
    assert without_credentials("redis+sentinel://u:p@a:1,b:2/s") == "redis+sentinel://a:1,b:2/s"


async def test_nobody_there_is_told() -> None:
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        async with open_redis(RedisConfig(url=f"redis://127.0.0.1:{free_port()}")):
            pass


async def test_nothing_that_was_asked_is_lost_with_a_connection(
    redis_process: RedisProcess,
) -> None:
    """Requests to cancel, and events, while the reader's connection is broken."""
    async with (
        Door(redis_process.port).opened() as door,
        open_redis(patient(url=f"redis://127.0.0.1:{door.port}")) as reader,
        open_redis(patient(url=redis_process.url)) as writer,
    ):
        kept = record(status="in_progress", streamed=True)
        await writer.put(kept)
        async with aclosing(reader.cancel_requests()) as requests:
            asked = asyncio.create_task(anext(requests))
            while not asked.done():
                # The reader hears what is asked for after it began, and nobody knows when that was.
                await writer.request_cancel("resp_before")
                await asyncio.sleep(0.02)
            assert await asked == "resp_before"
            events: list[bytes] = []
            following = asyncio.create_task(_follow(reader, kept.id, events))
            await writer.append_events(kept.id, [b"0"])
            await wait_until_async(lambda: events, "the reader follows")
            door.shut()
            await writer.request_cancel(kept.id)
            await writer.append_events(kept.id, [b"1"])
            with pytest.raises(StoreUnavailable, match="store: false"):
                await reader.health()
            await asyncio.sleep(0.3)
            door.unlock()
            async with asyncio.timeout(60):
                while (heard := await anext(requests)) == "resp_before":
                    pass
                assert heard == kept.id
            await writer.append_events(kept.id, [b"2"], last=True)
            async with asyncio.timeout(60):
                await following
            assert events == [b"0", b"1", b"2"]
        await reader.health()


async def test_what_was_done_although_its_answer_was_lost_is_done_once(
    redis_process: RedisProcess,
) -> None:
    """Connections break all the time: each event is there once, and each change succeeds."""
    config = {"outage": 60.0, "timeout": 10.0}
    async with (
        Door(redis_process.port).opened() as door,
        open_redis(patient(url=f"redis://127.0.0.1:{door.port}", **config)) as store,
    ):
        kept = [record(status="queued", streamed=True) for _ in range(20)]
        for each in kept:
            await store.put(each)
        done = asyncio.Event()

        written = 0

        async def disturb() -> None:
            while not done.is_set():
                before = written
                await asyncio.sleep(0.02)
                # Else a slow machine gets no further.
                await wait_until_async(lambda before=before: written > before or done.is_set())
                door.shut()
                door.unlock()

        disturbing = asyncio.create_task(disturb())

        async def write(response_id: str) -> None:
            nonlocal written
            for number in range(40):
                await store.append_events(response_id, [b"%d" % number])
                written += 1
            ended = record(
                response_id=response_id, streamed=True, output=[message("assistant", "x")]
            )
            assert await store.advance(ended, expected=("queued",))
            written += 1
            await store.append_events(response_id, [b"40"], last=True)
            written += 1

        async with asyncio.timeout(300):
            await asyncio.gather(*(write(each.id) for each in kept))
        done.set()
        await disturbing
        for each in kept:
            events = await through_outage(lambda each=each: _events(store, each.id), seconds=60)
            assert events == [b"%d" % number for number in range(41)]


async def test_a_full_redis_is_one_that_is_away(start_redis) -> None:
    redis = start_redis("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    async with open_redis(patient(url=redis.url, outage=0)) as store:
        with pytest.raises(StoreUnavailable):
            for _ in range(20):
                await store.put(record(output=[message("assistant", "x " * 500_000)]))
        await store.health()


async def test_a_replica_that_may_not_write_is_one_that_is_away(start_redis) -> None:
    primary = start_redis()
    replica = start_redis("--replicaof", "127.0.0.1", str(primary.port))
    async with open_redis(patient(url=replica.url, outage=0)) as store:
        with pytest.raises(StoreUnavailable):
            await store.put(record())


@pytest.mark.parametrize(
    "commands",
    [
        ["CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"],  # its primary is gone
        ["ACL SETUSER default -evalsha -eval"],
        ["ACL SETUSER default -hset -set -zadd -xadd"],  # what scripts call
        ["ACL SETUSER default resetkeys ~none*"],
    ],
)
async def test_a_redis_that_changes_is_one_that_is_away(start_redis, commands: list[str]) -> None:
    redis = start_redis()
    async with (
        open_redis(patient(url=redis.url, outage=0)) as store,
        Redis.from_url(redis.url) as client,
    ):
        await works(store)
        for command in commands:
            await client.execute_command(*command.split())
        with pytest.raises(StoreUnavailable):
            await store.put(record())


async def test_a_store_that_is_closed_does_not_wait_for_redis_to_come_back(start_redis) -> None:
    redis = start_redis()
    async with open_redis(patient(url=redis.url, outage=3600.0)) as store:
        kept = record(status="in_progress", streamed=True)
        await store.put(kept)
        redis.kill()
        append = asyncio.create_task(store.append_events(kept.id, [b"0"]))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await store.close()
        with pytest.raises(StoreUnavailable):
            await append
