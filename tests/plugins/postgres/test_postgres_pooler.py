"""The store behind PgBouncer, with its default settings."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from gateway.base.errors import ConfigurationError
from gateway_postgres import PostgresConfig, open_postgres
from gateway_testing.free_ports import free_port
from gateway_testing.postgres_process import PostgresProcess
from gateway_testing.store_records import record

pytestmark = pytest.mark.anyio

SECONDS = 60.0


@pytest.fixture
def start_pooler(
    postgres_process: PostgresProcess, tmp_path: Path
) -> Iterator[Callable[[str], str]]:
    """Starts a PgBouncer with a `pool_mode` before the tests' server. Gives its URL."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    started: list[subprocess.Popen[bytes]] = []

    def start(pool_mode: str) -> str:
        port = free_port()
        settings = tmp_path / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={postgres_process.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
            f"pool_mode = {pool_mode}\ndefault_pool_size = 4\nlogfile = /dev/null\n"
        )
        for each in (*tmp_path.parents, tmp_path):
            if each.stat().st_uid == os.getuid():
                each.chmod(each.stat().st_mode | 0o055)
        user = ["-u", "nobody"] if os.getuid() == 0 else []
        started.append(
            subprocess.Popen([program, "-q", *user, str(settings)], stderr=subprocess.DEVNULL)
        )
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    yield start
    for each in started:
        each.kill()
        each.wait()


async def reachable(url: str) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            connection = await asyncpg.connect(url, timeout=5)
        except (OSError, asyncpg.PostgresError):
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        else:
            await connection.close()
            return


async def test_a_pooler_in_session_mode_needs_no_settings(
    start_pooler: Callable[[str], str],
) -> None:
    url = start_pooler("session")
    await reachable(url)
    config = PostgresConfig(
        url=url, schema=f"t_{uuid.uuid4().hex[:12]}", max_connections=2, timeout=30
    )
    for _ in range(2):  # the second start finds the tables
        async with open_postgres(config) as store:
            kept = [record() for _ in range(20)]
            await asyncio.gather(*map(store.put, kept))
            for each in kept:
                assert await store.get(each.id) is not None


async def test_tables_that_are_not_found_are_one_sentence(
    start_pooler: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a pooler in transaction mode gives the next transaction another session."""
    url = start_pooler("transaction")
    await reachable(url)

    async def forgotten(connection: object, config: PostgresConfig) -> None:
        return

    monkeypatch.setattr("gateway_postgres.database.set_session", forgotten)
    config = PostgresConfig(url=url, schema=f"t_{uuid.uuid4().hex[:12]}", timeout=30)
    with pytest.raises(ConfigurationError, match="session mode"):
        async with open_postgres(config):
            pass
