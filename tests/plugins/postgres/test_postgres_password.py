"""A password in a file, which is changed while the gateway runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base.errors import StoreUnavailable
from gateway_postgres import PostgresConfig, open_postgres
from gateway_testing.postgres_process import PostgresProcess

pytestmark = pytest.mark.anyio


def ask_for_passwords(server: PostgresProcess) -> None:
    rules = Path(server.ask("SHOW hba_file").strip())
    rules.write_text("host all ada 127.0.0.1/32 scram-sha-256\n" + rules.read_text())


async def test_a_new_password_of_a_file_is_used_without_a_restart(tmp_path: Path) -> None:
    server = PostgresProcess()
    try:
        ask_for_passwords(server)
        server.ask("CREATE ROLE ada LOGIN SUPERUSER PASSWORD 'first'")
        server.ask("SELECT pg_reload_conf()")
        file = tmp_path / "password"
        file.write_bytes(b"\xef\xbb\xbffirst\r\n")
        config = PostgresConfig(
            url=server.url, username="ada", password="other", password_file=str(file),
            connect_timeout=30, timeout=30, outage=0,
        )  # fmt: skip
        async with open_postgres(config) as store:
            await store.health()
            server.ask("ALTER ROLE ada PASSWORD 'second'")
            server.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ada'"
            )
            with pytest.raises(StoreUnavailable) as told:
                await store.health()
            assert "first" not in str(told.value)
            file.unlink()
            with pytest.raises(StoreUnavailable, match="password_file"):
                await store.health()
            file.write_text("second\n")
            await store.health()
    finally:
        server.close()
