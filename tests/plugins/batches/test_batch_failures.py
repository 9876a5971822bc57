"""A batch that cannot be run ends, with an error that says why, and holds up no other one."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway_batches import batches, lines
from gateway_testing.server import run_gateway
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
@pytest.mark.slow
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


@pytest.mark.parametrize("stored", [b'[{"code": "\xff"}]', "{", "7", b"", "[{}]", "text"])
def test_errors_and_metadata_that_cannot_be_read_are_no_failure_of_the_server(
    tmp_path: Path, stored: object
) -> None:
    files = tmp_path / "files"
    with (
        run_gateway(configuration(files), tmp_path) as gateway,
        gateway.client(api_key="key-ada", max_retries=0) as client,
    ):
        ada = Batches(client)
        made = ada.ended(ada.create([line("first")], metadata={"a": "b"}))
        change(files, made, "errors", stored)
        change(files, made, "metadata", stored)
        shown = client.batches.retrieve(made.id)
        assert (shown.status, shown.metadata) == ("completed", None)
        assert [each.code for each in shown.errors.data] == ["server_error"]
        assert [each.id for each in client.batches.list()] == [made.id]


@pytest.mark.parametrize("kind", ["store", "begin_ending"])
@pytest.mark.slow
def test_a_batch_whose_results_could_not_be_written_for_a_moment_goes_on_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its lease does not have to expire."""
    monkeypatch.setattr("gateway_batches.runner._AGAIN_SECONDS", 0.1)
    module = lines if kind == "store" else batches
    write, troubles = getattr(module, kind), iter(range(2))

    def troubled(*arguments: Any, **options: Any) -> Any:
        if next(troubles, None) is not None:
            raise sqlite3.OperationalError("disk I/O error")
        return write(*arguments, **options)

    monkeypatch.setattr(module, kind, troubled)
    config = configuration(tmp_path / "files", apis={"batches": {"lease_seconds": 3600}})
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        ended = ada.ended(ada.create([line("a"), line("b")]))
        assert (ended.status, ended.request_counts.completed) == ("completed", 2)
        assert next(troubles, None) is None


@pytest.mark.slow
def test_a_batch_whose_results_have_no_room_on_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some tries. It holds up no other one."""
    files, full = tmp_path / "files", False
    monkeypatch.setattr("gateway_batches.runner._MAX_FULL", 2)
    connect = sqlite3.connect

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if sql.startswith("BEGIN"):  # a limit below what there is means what there is
                pages = 1 if full else 1_000_000
                super().execute(f"PRAGMA max_page_count = {pages}")
            return super().execute(sql, *arguments)

    def connected(path: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        if Path(path).name == "files.sqlite3":
            options["factory"] = Connection
        return connect(path, *arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", connected)
    config = configuration(files, apis={"batches": {"lease_seconds": 1}})
    long = "word " * 60_000
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        file, other = ada.upload([line("first", instructions=long)]), ada.upload([line("other")])
        full = True
        options: dict[str, Any] = {"endpoint": "/v1/responses", "completion_window": "24h"}
        made = ada.ended(client.batches.create(input_file_id=file.id, **options))
        assert made.status == "failed"
        assert [each.code for each in made.errors.data] == ["server_error"]
        assert "no room" in made.errors.data[0].message
        full = False
        made = ada.ended(client.batches.create(input_file_id=other.id, **options))
        assert made.status == "completed"


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


def test_many_batches_that_end_at_once_hold_up_neither_others_nor_requests(tmp_path: Path) -> None:
    """Their files cannot be written for a while: no more than two of them wait for that, and all else goes on."""
    files = tmp_path / "files"
    config = configuration(files, apis={"batches": {"running": 10, "lease_seconds": 5}})
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        made = [ada.create([line("later", "too much")]) for _ in range(10)]
        for each in made:
            ada.until(each, lambda now: now.status == "in_progress")
        file = ada.upload([line("quick")])
        with closing(sqlite3.connect(files / "files.sqlite3", timeout=60)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            for each in made:
                assert client.batches.cancel(each.id).status == "cancelling"
            other = client.batches.create(
                input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
            )
            other = ada.until(other, lambda now: now.request_counts.completed == 1)
            assert held(files) <= 2
            writer.execute("ROLLBACK")
        for each in made:
            ended = ada.ended(each)
            assert ended.status == "cancelled"
            assert [result["custom_id"] for result in ada.errors(ended)] == ["later"]
        assert ada.ended(other).status == "completed"


def held(folder: Path) -> int:
    """Number of batches that the process holds to end them."""
    with closing(sqlite3.connect(folder / "batches.sqlite3", timeout=30)) as connection:
        [number] = connection.execute(
            "SELECT count(*) FROM batches WHERE leased_until > ? AND cancelling_at IS NOT NULL",
            (time.time(),),
        ).fetchone()
    return int(number)


class RefusingUpstream(BaseHTTPRequestHandler):
    """Refuses every request, as one whose account is empty."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"error": {"message": "Insufficient credits."}}'
        self.send_response(402)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None: ...


def test_an_upstream_that_refuses_the_gateway_ends_a_batch_with_the_reason(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), RefusingUpstream) as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{upstream.server_address[1]}/v1"
        model = {"engine": "openai", "openai": {"base_url": url, "health_path": ""}}
        config = configuration(tmp_path / "files", models={"m": model})
        with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
            ada = Batches(client)
            ended = ada.ended(ada.create([line("first"), line("second")]))
            errors = ada.errors(ended)
        upstream.shutdown()
    assert (ended.status, ended.request_counts.failed) == ("completed", 2)
    for each in errors:
        assert each["response"]["status_code"] == 503
        assert each["response"]["body"]["error"]["code"] == "upstream_refused"
