"""The command line: what it prints, its exit codes, and that a mistake is a sentence."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.process.banner import banner

SCRIPTED = '[server]\nport = 0\nstore = "none"\n[models.m]\nengine = "scripted"\n'


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GATEWAY_CONFIG", raising=False)
    # Commands set up logging for their process; the next test shall not find it changed.
    monkeypatch.setattr("gateway.cli.models.set_up_logging", lambda level: None)
    monkeypatch.setattr("gateway.cli.serve.set_up_logging", lambda *_, **__: None)


def write(text: str) -> None:
    Path("gateway.toml").write_text(text, encoding="utf-8")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("config", "arguments", "sentence"),
    [
        ("[server]\nprot = 1\n[models.m]", ["serve"], 'gateway.toml line 2: server.prot: there is no such key; did you mean "port"?'),
        (SCRIPTED, ["serve", "--port", "70000"], "command line: server.port: expected an integer <= 65535."),
        (SCRIPTED, ["serve", "--engine", "scriptd"], 'no loaded plugin offers an engine named \'scriptd\'; did you mean "scripted"?'),
        (SCRIPTED, ["serve", "absent.gguf"], "there is no file 'absent.gguf'."),
        (SCRIPTED, ["serve", "--config", "absent.toml"], "absent.toml: the configuration cannot be read: No such file or directory."),
        (SCRIPTED.replace("port", 'apis = ["file_search"]\nport'), ["serve"], "gateway.toml: server.apis[0]: the API 'file_search' needs the tool: add a table [tools.file_search]."),
        (SCRIPTED + "[tools.no_such_tool]", ["serve"], "gateway.toml: tools.no_such_tool: no loaded plugin offers a tool"),
        (SCRIPTED + "[plugins]\nallow = []", ["serve"], "'scripted' (litegate-scripted 0.1.0) is installed but not loaded"),
        ("[models.m", ["models"], "gateway.toml: this is not TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], config: str, arguments: list[str], sentence: str
) -> None:
    write(config)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("gateway: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_ctrl_c_before_the_server_runs_is_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    write(SCRIPTED)
    monkeypatch.setattr("gateway.cli.serve.check_configuration", interrupted)
    assert run(capsys, "serve") == (130, "", "")


def test_a_port_that_is_taken_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        write(SCRIPTED.replace("port = 0", f"port = {port}"))
        assert f"port {port}" in run(capsys, "serve")[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--port", "x"], "`gateway serve`: argument --port: invalid int value: 'x'; `gateway serve --help` says what it takes."),
        (["serve", "--port"], "`gateway serve`: argument --port: expected one argument; `gateway serve --help` says"),
        (["install"], "`gateway install`: the following arguments are required: NAME; `gateway install --help` says"),
        (["usage", "--days", "0"], "`gateway usage`: argument --days: a number of days from 1 to 400; "),
        (["config", "nothing"], "`gateway config`: argument ACTION: invalid choice: 'nothing' (choose from"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"gateway: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["serve", "plugins", "models", "new"])
def test_every_command_has_a_help_text(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert len(capsys.readouterr().out.split()) > 30


def test_plugins_are_listed_with_what_is_selected(capsys: pytest.CaptureFixture[str]) -> None:
    write(SCRIPTED)
    code, out, _ = run(capsys, "plugins")
    assert code == 0
    assert out.startswith("KIND ")
    assert re.search(r"^engine +scripted +litegate-scripted +0\.1\.0 +selected ", out, re.MULTILINE)
    assert re.search(r"^store +memory +litegate-memory +0\.1\.0 +available ", out, re.MULTILINE)


def test_the_listing_as_json_has_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    write(SCRIPTED)
    rows = json.loads(run(capsys, "plugins", "--json")[1])
    text = run(capsys, "plugins")[1].splitlines()
    assert [row["name"] for row in rows] == [line.split()[1] for line in text[1:]]
    [engine] = [row for row in rows if (row["kind"], row["name"]) == ("engine", "scripted")]
    assert (engine["state"], engine["distribution"]) == ("selected", "litegate-scripted")


def test_plugins_that_do_not_load_are_listed_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(SCRIPTED + '[plugins]\nallow = ["scripted"]')
    out = run(capsys, "plugins")[1]
    assert re.search(r"^- +memory .* off +\[plugins\] in the configuration", out, re.MULTILINE)


def test_plugins_are_listed_also_where_the_configuration_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("[server]\nprot = 1")
    code, out, err = run(capsys, "plugins")
    assert code == 2
    assert "scripted" in out
    assert "server.prot" in err


def test_models_are_shown_with_the_reason_of_every_choice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(SCRIPTED + '[models.other]\nengine = "scripted"\nparser = "plain"\n')
    code, out, _ = run(capsys, "models")
    assert code == 0
    assert "renderer: chat_template" in out
    assert "parser plain (named in the configuration)" in out
    first, second = json.loads(run(capsys, "models", "--json")[1])
    assert (first["name"], first["engine"]) == ("m", "scripted")
    assert (second["name"], second["parser"]) == ("other", "plain")


def test_models_can_be_shown_without_being_opened(capsys: pytest.CaptureFixture[str]) -> None:
    write(SCRIPTED + '[models.o]\nengine = "scripted"\nreasoning = "deepseek_r1"\n')
    code, out, _ = run(capsys, "models", "--no-open", "--json")
    assert code == 0
    first, second = json.loads(out)
    assert (first["engine"], first["parser"]) == ("scripted", None)
    assert second["reasoning"] == "deepseek_r1"


def test_a_model_that_cannot_be_opened_does_not_hide_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write('[models.a]\npath = "absent.gguf"\n' + SCRIPTED)
    code, out, _ = run(capsys, "models", "--json")
    assert code == 1
    first, second = json.loads(out)
    assert "there is no file 'absent.gguf'" in first["error"]
    assert "error" not in second


def test_the_banner_has_a_request_that_a_shell_takes() -> None:
    text = banner("http://127.0.0.1:8000", ["it's a model", "b"])
    command = re.search(r"curl .*?\n.*?$", text, re.MULTILINE)
    assert command is not None
    words = shlex.split(command[0].replace("\\\n", ""))
    assert words[1] == "http://127.0.0.1:8000/v1/responses"
    assert json.loads(words[-1])["model"] == "it's a model"
    assert "Models: it's a model, b" in text


def test_the_banner_says_whether_there_is_a_page() -> None:
    line = "\nIn a browser: http://127.0.0.1:8000\n"
    assert line in banner("http://127.0.0.1:8000", ["m"], page=True)
    assert line not in banner("http://127.0.0.1:8000", ["m"])
    assert "browser" not in banner("http://localhost", ["m"], page=True, unix_socket="/run/s")


def test_the_banner_of_a_server_with_keys_sends_one() -> None:
    text = banner("http://127.0.0.1:8000", ["m"], needs_key=True)
    command = re.search(r"curl .*?\n.*?$", text, re.MULTILINE)
    assert command is not None
    assert "authorization: Bearer $OPENAI_API_KEY" in shlex.split(command[0].replace("\\\n", ""))
    assert 'OpenAI(base_url="http://127.0.0.1:8000/v1")' in text


def test_the_banner_of_a_model_that_reranks_has_a_request_for_it() -> None:
    text = banner("http://127.0.0.1:8000", ["r"], use="reranks")
    command = re.search(r"curl .*?\n.*?$", text, re.MULTILINE)
    assert command is not None
    words = shlex.split(command[0].replace("\\\n", ""))
    assert words[1] == "http://127.0.0.1:8000/v1/rerank"
    assert json.loads(words[-1]).keys() == {"model", "query", "documents"}
    assert "openai" not in text


def test_the_module_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "gateway", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"litegate \d+\.\d+\.\d+ \(Python 3\.\d+\.\d+\w*\)", lines[0])
    assert all(re.fullmatch(r"  [a-z0-9-]+ \d\S*", line) for line in lines[1:])
    assert any(line.startswith("  litegate-scripted ") for line in lines)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    write(SCRIPTED)
    command = f"{sys.executable} -m gateway plugins | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["config"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert "gateway.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "shown"), [(["help"], "commands:"), (["help", "serve"], "usage: gateway serve")]
)
def test_help_is_a_command_too(
    capsys: pytest.CaptureFixture[str], asked: list[str], shown: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert ended.value.code == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        (["serv"], 'did you mean "gateway serve"?'),
        (["help", "instal"], 'did you mean "gateway install"?'),
        (["frobnicate"], "`gateway help` lists the commands"),
        (["version"], 'did you mean "gateway --version"?'),
        (["config", "chek"], "ACTION cannot be 'chek'; did you mean \"check\"?"),
        (["new", "tol", "x"], "cannot be 'tol'; did you mean \"tool\"? It is one of: engine, "),
    ],
)
def test_a_wrong_command_is_answered_by_a_sentence(
    capsys: pytest.CaptureFixture[str], asked: list[str], hint: str
) -> None:
    code, out, err = run(capsys, *asked)
    assert (code, out) == (2, "")
    assert hint in err
    assert err.count("\n") == 1


def test_a_wrong_name_is_compared_with_what_is_not_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.base.packages.is_installed", lambda package: False)
    write("[plugins]\ndisable = ['browser']\n[tools.brwser]\n")
    code, _, err = run(capsys, "config", "check")
    assert code == 2
    assert 'did you mean "browser"?' in err
    assert "`pip install litegate-browser` installs it" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["serve", "--prot", "1"], "`gateway serve` has no option '--prot'; did you mean \"--port\"?"),
        (["serve", "--prot=1"], "`gateway serve` has no option '--prot'; did you mean \"--port\"?"),
        (["key", "--xyzzy"], "`gateway key` has no option '--xyzzy'; `gateway key --help` lists"),
        (["config", "check", "x.toml"], "`gateway config check` takes no argument 'x.toml'"),
        (["--verion"], "`gateway` has no option '--verion'; did you mean \"--version\"?"),
        (["-v", "serve"], "`gateway` has no option '-v'; "),
    ],
)  # fmt: skip
def test_an_unknown_option_is_one_sentence(
    capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(given) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "gateway", "config", "schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "gateway: [Errno 28] No space left on device.\n"
