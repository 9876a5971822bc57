"""A batch that cannot be run ends, with an error that says why, and holds up no other one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.testing.server import run_gateway
from tests.plugins.batches.batch_client import Batches, configuration, line


def change(folder: Path, batch: Any, column: str, value: Any) -> None:
    """Change a stored batch, as an administrator or a faulty disk may."""
    with closing(sqlite3.connect(folder / "batches.sqlite3", timeout=30)) as connection:
        changed = connection.execute(
            f"UPDATE batches SET {column} = ? WHERE id = ?",
            (value, batch.id),
        )
        connection.commit()
        assert changed.rowcount == 1


@pytest.mark.parametrize(
    "stored", [b"\xff", b'{"principal": {"name": 7}}', b"[]", b"", "text", None]
)
def test_a_delegation_that_cannot_be_read_fails_its_batch_and_no_other(
    tmp_path: Path, stored: object
) -> None:
    files = tmp_path / "files"
    config = configuration(files, apis={"batches": {"running": 1}})
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        made = ada.create([line("first"), line("later", "too much")])
        made = ada.until(made, lambda now: now.request_counts.completed == 1)
        change(files, made, "delegation", b"" if stored is None else stored)
        if stored is None:  # the one that is to end comes first
            change(files, made, "expires_at", 1)
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        other = ada.ended(ada.create([line("other")]))
        assert other.status == "completed"
        ended = ada.ended(made)
        assert [each["custom_id"] for each in ada.output(ended)] == ["first"]
        [undone] = ada.errors(ended)
        if stored is None:
            assert (ended.status, undone["error"]["code"]) == ("expired", "batch_expired")
        else:
            assert (ended.status, undone["error"]["code"]) == ("failed", "batch_failed")
            assert ended.errors.data[0].code == "invalid_delegation"
            assert "API key" in ended.errors.data[0].message


@pytest.mark.slow
def test_a_batch_that_always_breaks_ends(tmp_path: Path) -> None:
    """Even if its files cannot be written."""
    files = tmp_path / "files"
    config = configuration(files, apis={"batches": {"lease_seconds": 1, "running": 1}})
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        made = ada.until(
            ada.create([line("later", "too much")]), lambda now: now.status == "in_progress"
        )
        change(files, made, "delegation", b"")
        change(files, made, "output_seconds", "many")
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        assert ada.ended(ada.create([line("other")])).status == "completed"
        ended = ada.ended(made)
        assert ended.status == "failed"
        assert [each.code for each in ended.errors.data] == ["server_error"]
