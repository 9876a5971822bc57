"""`gateway batch run`, with a real server."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.cli import main
from gateway.cli.batch import _Batch, _Counts, _Progress, duration
from gateway_testing.server import RunningGateway, run_gateway, to_toml
from tests.plugins.batches.batch_client import SECONDS, configuration, line
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with run_gateway(configuration(folder / "files"), folder) as running:
        yield running


@pytest.fixture
def options(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "key-ada")
    return ["--url", gateway.base_url]


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def results(path: Path) -> list[str]:
    return [json.loads(each)["custom_id"] for each in path.read_text().splitlines()]


def test_results_are_written_beside_the_file(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.jsonl", *(line(f"r{n}") for n in range(20)))
    assert main(["batch", "run", str(source), *options]) == 0
    assert results(tmp_path / "in.out.jsonl") == [f"r{n}" for n in range(20)]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "completed: 20 of 20 lines, 0 failed\n" in shown.err
    assert "\x1b" not in shown.err, "no bar where there is no terminal"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.jsonl", "in.out.jsonl"]
    # A second time would overwrite them.
    assert main(["batch", "run", str(source), *options]) == 2
    assert "exists" in capsys.readouterr().err


def test_batches_are_listed_shown_and_stopped(
    tmp_path: Path,
    gateway: RunningGateway,
    options: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = write(tmp_path / "in.jsonl", *(line(f"r{n}", "slowly") for n in range(3)))
    with gateway.client(api_key="key-ada") as client:
        file = client.files.create(file=source, purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
        )
    (tmp_path / "in.out.jsonl.batch").write_text(
        json.dumps(
            {"url": gateway.base_url, "sha256": "", "file_id": file.id, "batch_id": batch.id}
        )
    )
    assert main(["batch", "list", *options, "-n", "1"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["batch", "created", "status", "lines", "done", "failed"]
    assert row.startswith(batch.id)
    for named in (batch.id, str(source), str(tmp_path / "in.out.jsonl")):
        assert main(["batch", "status", named, *options]) == 0
        assert batch.id in capsys.readouterr().out
    assert main(["batch", "cancel", str(source), *options]) == 0
    assert "cancel" in capsys.readouterr().out
    wait_until(lambda: status_of(batch.id, options, capsys) == "cancelled")
    assert main(["batch", "cancel", batch.id, *options]) == 1
    assert capsys.readouterr().err.startswith("gateway: ")
    # Another key's batches are not there.
    assert main(["batch", "status", batch.id, *options, "--api-key", "key-bob"]) == 1
    assert batch.id not in main_output(["batch", "list", *options, "--api-key", "key-bob"], capsys)
    other = write(tmp_path / "other.jsonl", line("a"))
    assert main(["batch", "status", str(other), *options]) == 2
    assert "`gateway batch list` has the ids" in capsys.readouterr().err


@pytest.mark.parametrize(("named", "code"), [("", 2), (".", 2), ("/", 2), ("x" * 5000, 1)])
def test_what_names_no_batch_is_said_in_one_sentence(
    named: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "status", named, "--url", "http://127.0.0.1:9/v1"]) == code
    assert len(capsys.readouterr().err.splitlines()) == 1


def main_output(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    main(arguments)
    return capsys.readouterr().out


def status_of(batch: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    [line] = [
        line
        for line in main_output(["batch", "status", batch, *options], capsys).splitlines()
        if line.startswith("status")
    ]
    return line.split()[1]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"), (0.2, "1 s"), (59, "59 s"), (60, "1 min 00 s"), (3599.5, "1 h 00 min"), (11_100, "3 h 05 min"), (200_000, "2 d 07 h"),
    ],
)  # fmt: skip
def test_times_have_two_units(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_the_speed_is_that_since_the_command_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines that were done before do not count: the batch may have run for hours already."""
    now = iter([100.0, 104.0, 110.0])
    # Only that of the module: servers of other tests use the clock.
    monkeypatch.setattr("gateway.cli.batch.time", SimpleNamespace(monotonic=lambda: next(now)))
    progress = _Progress()
    for done in (40, 40, 60):
        counts = _Counts(total=100, completed=done)
        progress.show(_Batch(id="b", status="in_progress", request_counts=counts))
    assert capsys.readouterr().err.splitlines() == [
        "in_progress: 40 of 100 lines, 0 failed",
        "in_progress: 60 of 100 lines, 0 failed, 2/s, 20 s left",
    ]


def test_errors_have_a_file_of_their_own(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {**line("bad"), "method": "GET"}
    source = write(tmp_path / "in.jsonl", line("good"), bad, line("fails", model="none"))
    out = tmp_path / "done.jsonl"
    assert main(["batch", "run", str(source), "-o", str(out), *options]) == 1
    assert results(out) == ["good"]
    assert results(tmp_path / "done.errors.jsonl") == ["bad", "fails"]
    assert "line 2: method must be 'POST'." in capsys.readouterr().err


def test_the_endpoint_is_that_of_the_lines(tmp_path: Path, options: list[str]) -> None:
    source = write(tmp_path / "in.jsonl", line("a", url="/v1/chat/completions"))
    assert main(["batch", "run", str(source), *options]) == 0
    [result] = (tmp_path / "in.out.jsonl").read_text().splitlines()
    assert json.loads(result)["response"]["body"]["object"] == "chat.completion"


@pytest.mark.parametrize(
    ("content", "more", "code", "said"),
    [
        (None, [], 2, "cannot be read"),
        (b"nothing\n", [], 2, "no line with a url"),
        (json.dumps(line("a")).encode(), ["--api-key", "wrong"], 1, "Incorrect API key"),
        (json.dumps(line("a")).encode(), ["--url", "http://127.0.0.1:9/v1"], 1, "Nothing listens"),
        (json.dumps(line("a")).encode(), ["--window", "soon"], 1, "completion_window"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(
    tmp_path: Path,
    options: list[str],
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    more: list[str],
    code: int,
    said: str,
) -> None:
    source = tmp_path / "in.jsonl"
    if content is not None:
        source.write_bytes(content)
    assert main(["batch", "run", str(source), *options, *more]) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_an_interrupted_command_is_continued_by_the_same_one(
    tmp_path: Path,
    gateway: RunningGateway,
    options: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = write(tmp_path / "in.jsonl", *(line(f"r{n}", "slowly") for n in range(3)))
    command = [sys.executable, "-m", "gateway", "batch", "run", str(source), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for said in process.stderr:
        if "of 3 lines" in said:
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "The batch goes on" in rest
    memory = tmp_path / "in.out.jsonl.batch"
    batch_id = json.loads(memory.read_text())["batch_id"]
    # Another file is not taken for this one.
    other = write(tmp_path / "other.jsonl", line("a"))
    out = str(tmp_path / "in.out.jsonl")
    assert main(["batch", "run", str(other), "-o", out, *options]) == 2
    assert "of another file" in capsys.readouterr().err
    with gateway.client(api_key="key-ada") as client:
        client.batches.cancel(batch_id)
        assert main(["batch", "run", str(source), *options]) == 1
        shown = capsys.readouterr().err
        assert f"going on with batch {batch_id}" in shown
        assert "cancelled: 3 of 3 lines" in shown
        assert results(tmp_path / "in.out.errors.jsonl") == ["r0", "r1", "r2"]
        assert not memory.exists()


def test_a_batch_whose_id_was_not_remembered_is_found(
    tmp_path: Path, gateway: RunningGateway, options: list[str]
) -> None:
    """The command was killed between making the batch and remembering it."""
    source = write(tmp_path / "in.jsonl", *(line(f"r{n}") for n in range(3)))
    out = tmp_path / "out.jsonl"
    with gateway.client(api_key="key-ada") as client:
        before = len(list(client.batches.list()))
        assert main(["batch", "run", str(source), "-o", str(out), *options]) == 0
        made = client.batches.list(limit=1).data[0]
        out.unlink()
        memory = {
            "url": gateway.base_url,
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
            "file_id": made.input_file_id,
        }
        (tmp_path / "out.jsonl.batch").write_text(json.dumps(memory))
        assert main(["batch", "run", str(source), "-o", str(out), *options]) == 0
        assert len(list(client.batches.list())) == before + 1
    assert results(out) == ["r0", "r1", "r2"]


@pytest.mark.slow
def test_a_server_that_is_started_again_is_waited_for(tmp_path: Path) -> None:
    config = configuration(tmp_path / "files")
    del config["server"]
    config["apis"]["batches"] = {"lease_seconds": 1}
    source = write(tmp_path / "in.jsonl", *(line(f"r{n}", "too much") for n in range(2)))
    with run_gateway(config, tmp_path) as first:
        port = first.base_url.rsplit(":", 1)[1].removesuffix("/v1")
        command = [sys.executable, "-m", "gateway", "batch", "run", str(source), "--url", first.base_url]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for said in process.stderr:
            if "in_progress" in said:
                break
    for said in process.stderr:
        if "Waiting for it." in said:
            break
    config["models"]["m"]["scripted"] = {"rules": []}
    file = tmp_path / "gateway.toml"
    file.write_text(to_toml(config))
    again = subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", port],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert results(tmp_path / "in.out.jsonl") == ["r0", "r1"]
    finally:
        again.send_signal(signal.SIGTERM)
        again.wait(timeout=SECONDS)


def test_a_terminal_has_a_bar(
    tmp_path: Path, options: list[str], on_terminal: Callable[..., Any]
) -> None:
    source = write(tmp_path / "in.jsonl", *(line(f"r{n}") for n in range(5)))
    process = on_terminal("batch", "run", str(source), *options, OPENAI_API_KEY="key-ada")
    process.until("[########")
    wait_until((tmp_path / "in.out.jsonl").exists)
    assert process.wait() == 0
