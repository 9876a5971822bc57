"""`gateway doctor`: a line for each check, and the exit code."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from gateway.cli import main

SCRIPTED = '[server]\nport = 0\nstore = "none"\n[models.m]\nengine = "scripted"\n'


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GATEWAY_CONFIG", raising=False)
    # The command sets up logging for its process; the next test shall not find it changed.
    monkeypatch.setattr("gateway_doctor.command.set_up_logging", lambda level: None)


def write(text: str) -> None:
    Path("gateway.toml").write_text(text, encoding="utf-8")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["doctor", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_doctor_says_ok_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    write(SCRIPTED.replace('"none"', '"memory"'))
    code, out, _ = run(capsys)
    assert code == 0
    *checks, last = out.splitlines()
    assert {line.split()[0] for line in checks} <= {"ok", "warn"}
    assert last.startswith("No model was opened: `gateway doctor --generate`")
    for what in ("configuration", "plugin scripted", "model m", "store memory", "address"):
        assert re.search(rf"^ok +{what}", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("[models.m]\nenigne = 1", "FAIL  configuration: gateway.toml line 2"),
        (SCRIPTED + '[plugins]\nallow = ["no_such"]', "FAIL  plugins: plugins.allow: no plugin"),
        (SCRIPTED.replace("scripted", "scriptd"), "FAIL  model m: models.m.engine: no loaded plugin"),
        (SCRIPTED + 'path = "/absent/model"', "FAIL  model m: models.m.path: there is no '/absent/model'"),
        (SCRIPTED + "[tools.no_such_tool]", "FAIL  tool no_such_tool: tools.no_such_tool: no loaded"),
        (SCRIPTED.replace('"none"', '"nowhere"'), "FAIL  store nowhere: server.store: no loaded plugin"),
        (SCRIPTED.replace('"none"', '"memory"') + "[stores.memory]\nttl = -1", "FAIL  store memory: stores.memory.ttl"),
        (SCRIPTED + '[tools.mcp.remote]\nallow_hosts = ["☃.net"]', "FAIL  tool mcp: tools.mcp.remote: allow_hosts: '☃.net' is not a host."),
        (SCRIPTED + '[tools.mcp.servers.docs]\ncommand = ["no-such-program", "-y"]', "FAIL  tool mcp: tools.mcp.servers.docs.command: the program 'no-such-program' is not installed: PATH ("),
        (SCRIPTED.replace("port = 0", 'host = "no.such.host.invalid"\nallow_anonymous = true'), "FAIL  address no.such.host.invalid"),
        (SCRIPTED.replace("port = 0", 'host = "0.0.0.0"'), "FAIL  address 0.0.0.0 port 8000: server.host is 0.0.0.0, which other"),
    ],
)  # fmt: skip
def test_doctor_finds_what_is_wrong_and_exits_with_1(
    capsys: pytest.CaptureFixture[str], config: str, line: str
) -> None:
    write(config)
    code, out, _ = run(capsys)
    assert code == 1
    assert line in out


def test_a_port_that_is_taken_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        write(SCRIPTED.replace("port = 0", f"port = {port}"))
        code, out, _ = run(capsys)
    assert code == 1
    assert f"FAIL  address 127.0.0.1 port {port}" in out


@pytest.mark.parametrize("arguments", [["m"], ["--engine", "scripted"]])
def test_a_model_is_named_with_generate_only(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    write(SCRIPTED)
    assert run(capsys, *arguments) == (2, "", "gateway: MODEL and --engine go with --generate.\n")


def test_the_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--help"])
    assert caught.value.code == 0
    assert len(capsys.readouterr().out.split()) > 30
