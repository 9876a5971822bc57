"""A password in a file, which is changed while the gateway runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway_redis import RedisConfig, open_redis
from gateway_testing.free_ports import free_port

pytestmark = pytest.mark.anyio


async def change(url: str, password: str, *commands: tuple[str, ...]) -> None:
    """Run `commands`, and close all other connections, as an operator who changes a password."""
    async with Redis.from_url(url, password=password, protocol=2) as admin:
        for command in commands:
            await admin.execute_command(*command)
        await admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.parametrize("user", [None, "ada", "ada in the URL"])
async def test_a_new_password_of_a_file_is_used_without_a_restart(
    start_redis: Any, tmp_path: Path, user: str | None
) -> None:
    redis = start_redis("--requirepass", "first")
    file = tmp_path / "password"
    file.write_bytes(b"\xef\xbb\xbffirst\r\n")
    name = "ada" if user else "default"
    await change(redis.url, "first", ("ACL", "SETUSER", name, "on", ">first", "~*", "+@all"))
    url = redis.url if user != "ada in the URL" else redis.url.replace("//", "//ada:wrong@")
    config = RedisConfig(
        url=url, username="ada" if user == "ada" else None, password="other",
        password_file=str(file), connect_timeout=30, timeout=30, outage=0,
    )  # fmt: skip
    async with open_redis(config) as store:
        await store.health()
        await change(redis.url, "first", ("ACL", "SETUSER", name, "<first", ">second"))
        with pytest.raises(StoreUnavailable) as told:
            await store.health()
        assert "first" not in str(told.value)
        assert "password" in str(told.value)
        file.unlink()
        with pytest.raises(StoreUnavailable, match=r"password_file under \[stores.redis\] cannot"):
            await store.health()
        file.write_text("second\n")
        await store.health()


async def test_a_file_that_is_not_there_stops_the_start_with_a_sentence(
    start_redis: Any, tmp_path: Path
) -> None:
    config = RedisConfig(url=start_redis().url, password_file=str(tmp_path / "none"))
    with pytest.raises(
        ConfigurationError, match=r"password_file under .* cannot be read: No such file"
    ):
        async with open_redis(config):
            pass


def test_every_kind_of_client_reads_the_file(tmp_path: Path) -> None:
    from gateway_redis.location import FileCredentials, make_client

    file, port = tmp_path / "password", free_port()
    for url in (
        f"redis://ada:old@127.0.0.1:{port}/0",
        f"rediss://ada:old@127.0.0.1:{port}/0",
        "unix://ada:old@/tmp/none.sock",
        f"redis+sentinel://ada:old@127.0.0.1:{port}/main",
        f"redis+cluster://ada:old@127.0.0.1:{port}",
    ):
        client: Any = make_client(RedisConfig(url=url, password_file=str(file)))
        if "cluster" in url:
            settings = client.connection_kwargs
        else:
            settings = client.connection_pool.connection_kwargs
        found = settings["credential_provider"]
        assert isinstance(found, FileCredentials), url
        assert found.username == "ada"
        assert not settings.get("password")
