"""Models of a hub by the command line: pulled, listed, removed, served; interrupted, and without room."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import random
import re
import resource
import select
import signal
import subprocess
import sys
import termios
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from huggingface_hub import constants

from gateway.cli import main
from gateway_testing.hub_server import Handler, HubServer
from tests.waiting import wait_until

TINY = Path(__file__).parents[3] / "backends/llamacpp/gateway_llamacpp/models/tiny-qwen3.gguf"
DATA = random.Random(0).randbytes(4_000_000)


@pytest.fixture
def cache(hub_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the hub that this process uses."""
    monkeypatch.chdir(tmp_path)
    for key in [key for key in os.environ if key.startswith(("GATEWAY_", "HF_", "TRANSFORMERS_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setattr(constants, "ENDPOINT", hub_server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    monkeypatch.setattr("gateway.cli.cache.set_up_logging", lambda level: None)
    hub_server.add("o/m-GGUF", {"m-Q4_K_M.gguf": DATA, "m-Q8_0.gguf": b"GGUF8"})
    hub_server.add("o/tiny-GGUF", {"tiny-Q8_0.gguf": TINY.read_bytes()})
    return tmp_path / "hf" / "hub"


def environment(hub_server: HubServer, cache: Path) -> dict[str, str]:
    """The environment of a process with the same hub and cache."""
    return {
        **os.environ,
        "HF_ENDPOINT": hub_server.url,
        "HF_HOME": str(cache.parent),
        "COLUMNS": "100",
    }


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_model_is_pulled_listed_and_removed(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "models", "--cached")
    assert (code, err) == (0, "")
    assert out == f"The cache {cache} has no model. `gateway pull MODEL` downloads one.\n"

    code, out, err = run(capsys, "pull", "o/m-GGUF", "hf:o/m-GGUF:Q8_0")
    assert (code, err) == (0, "")
    assert out == (
        "o/m-GGUF:Q4_K_M is in the cache (4.0 MB).\no/m-GGUF:Q8_0 is in the cache (5 B).\n"
    )

    _, out, _ = run(capsys, "models", "--cached")
    assert re.fullmatch(
        r"NAME +KIND +SIZE +LAST USED\n"
        r"o/m-GGUF:Q8_0 +gguf +5 B +\d{4}-\d\d-\d\d \d\d:\d\d\n"
        r"o/m-GGUF:Q4_K_M +gguf +4\.0 MB +\d{4}-\d\d-\d\d \d\d:\d\d\n",
        out,
    )
    _, out, _ = run(capsys, "models", "--cached", "--json")
    assert [(each["name"], each["size"]) for each in json.loads(out)] == [
        ("o/m-GGUF:Q8_0", 5),
        ("o/m-GGUF:Q4_K_M", len(DATA)),
    ]

    assert run(capsys, "rm", "o/m-GGUF:Q4_K_M")[1] == "o/m-GGUF:Q4_K_M is removed (4.0 MB).\n"
    assert run(capsys, "rm", "o/m-GGUF")[1] == "o/m-GGUF is removed (5 B).\n"
    assert list(cache.glob("models--*")) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pull", "o/n-GGUF"], "/ has no repository o/n-GGUF: check the spelling, or set HF_TOKEN if it is private."),
        (["pull", "o/m-GGUF:Q5_0"], "o/m-GGUF has no Q5_0; did you mean o/m-GGUF:Q8_0? It has Q8_0, Q4_K_M."),
        (["pull", "o/m-GGUF:BF16"], "o/m-GGUF has no BF16. It has Q8_0, Q4_K_M."),
        (["pull", "gpt2"], "'gpt2' is not a name of the hub, such as owner/repository, "),
        (["pull", "../x"], "'../x' is not a name of the hub"),
        (["rm", "o/m-GGUF"], "o/m-GGUF is not in the cache"),
        (["serve", "o/n-GGUF:Q4_0"], "there is no file or folder 'o/n-GGUF:Q4_0' here, and"),
        (["serve", "wrd"], "there is no model, file or folder 'wrd'. Configured models: tiny. Write a model of the hub with"),
        (["serve", "tny"], "there is no model, file or folder 'tny'; did you mean \"tiny\"?"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    hub_server: HubServer,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.setattr("gateway.cli.serve.set_up_logging", lambda *_, **__: None)
    if arguments[0] == "serve":
        arguments = [*arguments, "--port", "0"]
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("gateway: ")
    assert err.count("\n") == 1
    assert sentence in err.replace(hub_server.url, "/")
    assert "vLLM" not in err
    assert not cache.exists()


def test_offline_only_the_cache_is_used(cache: Path, hub_server: HubServer) -> None:
    def pull(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gateway", "pull", name],
            cwd=cache.parents[1],
            env={**environment(hub_server, cache), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    assert main(["pull", "o/m-GGUF:Q8_0"]) == 0
    before = len(hub_server.seen)
    assert pull("o/m-GGUF").stdout == "o/m-GGUF:Q8_0 is in the cache (5 B).\n"
    assert pull("o/tiny-GGUF").stderr.splitlines()[-1] == (
        f"gateway: o/tiny-GGUF is not in the cache {cache}, and HF_HUB_OFFLINE is set: unset it, or run "
        "`gateway pull o/tiny-GGUF` where the hub can be reached."
    )
    assert len(hub_server.seen) == before


def test_the_doctor_says_what_will_be_downloaded(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_doctor.command.set_up_logging", lambda level: None)
    Path("gateway.toml").write_text('[models.m]\npath = "o/m-GGUF/m-Q8_0.gguf"\n')
    line = "ok    model m: engine llamacpp (the model is GGUF files of the hub): 5 B"
    assert f"{line}, 5 B to be downloaded\n" in run(capsys, "doctor")[1]
    assert main(["pull", "o/m-GGUF/m-Q8_0.gguf"]) == 0
    assert f"{line}, in the cache\n" in run(capsys, "doctor")[1]
    Path("gateway.toml").write_text('[models.m]\npath = "o/m-GGUF:Q5_0"\n')
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "FAIL  model m: models.m.path: o/m-GGUF has no Q5_0; did you mean o/m-GGUF:Q8_0?" in out


def test_a_token_that_the_environment_has_is_sent(
    cache: Path, hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_server.add("o/private-GGUF", {"p-Q8_0.gguf": b"GGUF"}, token="hf_secret")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert main(["pull", "o/private-GGUF"]) == 0


@contextmanager
def process(hub_server: HubServer, cache: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the command."""
    running = subprocess.Popen(
        [sys.executable, "-m", "gateway", *arguments],
        cwd=cache.parents[1],
        env=environment(hub_server, cache),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def hold_at(hub_server: HubServer, size: int) -> tuple[threading.Event, threading.Event]:
    """Let the hub send `size` bytes of a file, and then wait. Returns the events of having sent and of going on."""
    sent, go_on = threading.Event(), threading.Event()

    def answer(handler: Handler) -> bool:
        if not handler.path.startswith("/cdn/") or sent.is_set():
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        handler.wfile.write(DATA[:size])
        sent.set()
        go_on.wait(120)
        return True

    hub_server.answer = answer
    return sent, go_on


def partial_size(cache: Path) -> int:
    digest = hashlib.sha256(DATA).hexdigest()
    file = cache / "models--o--m-GGUF" / "blobs" / f"{digest}.incomplete"
    return file.stat().st_size if file.exists() else 0


@pytest.mark.parametrize(
    ("command", "sent_signal", "code"),
    [
        ("pull", signal.SIGINT, 130),
        ("pull", signal.SIGKILL, -9),
        pytest.param("serve", signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_what_was_interrupted_goes_on_where_it_stopped(
    cache: Path, hub_server: HubServer, command: str, sent_signal: signal.Signals, code: int
) -> None:
    sent, go_on = hold_at(hub_server, 3_000_000)
    with process(hub_server, cache, command, "o/m-GGUF") as running:
        assert sent.wait(120)
        wait_until(lambda: partial_size(cache) >= 2_000_000)
        running.send_signal(sent_signal)
        go_on.set()
        assert running.wait(120) == code
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()
    kept = partial_size(cache)
    assert kept >= 2_000_000

    assert main(["pull", "o/m-GGUF"]) == 0
    assert f"bytes={kept}-" in [request.headers.get("range") for request in hub_server.seen]
    [model] = (cache / "models--o--m-GGUF" / "snapshots").rglob("*.gguf")
    assert model.read_bytes() == DATA


def test_a_disk_that_is_full_is_a_sentence_and_the_download_goes_on_later(
    cache: Path, hub_server: HubServer
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "pull", "o/m-GGUF"],
        cwd=cache.parents[1],
        env=environment(hub_server, cache),
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000)),
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"gateway: There is no room for o/m-GGUF:Q4_K_M in {cache} (File too large): make room (`gateway models --cached`, "
        "`gateway rm`), or set HF_HOME to a folder on another disk; the download then goes on where it stopped."
    )
    assert 0 < partial_size(cache) <= 1_500_000
    assert main(["pull", "o/m-GGUF"]) == 0


def test_a_disk_without_room_is_noticed_before_the_download(
    cache: Path, hub_server: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    siblings = [{"rfilename": "m-Q4_0.gguf", "size": 10**15, "lfs": {"sha256": "a" * 64}}]
    listing = json.dumps({"sha": "a" * 40, "siblings": siblings}).encode()

    def answer(handler: Handler) -> bool:
        handler.reply(200, listing)
        return True

    hub_server.answer = answer
    code, _, err = run(capsys, "pull", "o/m-GGUF")
    assert code == 2
    assert re.match(
        r"gateway: o/m-GGUF needs 1000\.0 TB more in \S+, which has \S+ \wB free: make room", err
    )


@pytest.mark.slow
def test_a_terminal_shows_a_bar_and_a_log_lines(cache: Path, hub_server: HubServer) -> None:
    with process(hub_server, cache, "pull", "o/m-GGUF") as running:
        out, err = running.communicate(timeout=300)
    assert out == "o/m-GGUF:Q4_K_M is in the cache (4.0 MB).\n"
    percents = re.findall(
        r"INFO +gateway\.models\.hub: downloading o/m-GGUF:Q4_K_M: (\d+) % of 4\.0 MB", err
    )
    assert percents[-1] == "100"
    assert 5 <= len(percents) <= 10

    assert main(["rm", "o/m-GGUF"]) == 0
    main_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (25, 100))
    shown = subprocess.Popen(
        [sys.executable, "-m", "gateway", "pull", "o/m-GGUF"],
        cwd=cache.parents[1],
        env=environment(hub_server, cache),
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    seen = read_all(main_end)
    assert shown.wait(120) == 0
    assert "downloading o/m-GGUF:Q4_K_M: 100%|" in seen
    assert "4.00M/4.00M" in seen


def read_all(descriptor: int) -> str:
    """What is written to a terminal until its other end is closed."""
    data = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], 60)
        try:
            more = os.read(descriptor, 65_536) if ready else b""
        except OSError:  # Linux: the other end is closed
            more = b""
        if not more:
            os.close(descriptor)
            return data.decode()
        data += more


def get(url: str) -> Mapping[str, object]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: Mapping[str, object] = json.load(answer)
        return found


def post(url: str, body: Mapping[str, object]) -> Mapping[str, object]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: Mapping[str, object] = json.load(answer)
        return found


@pytest.mark.slow
def test_a_model_of_the_hub_is_served(cache: Path, hub_server: HubServer) -> None:
    with process(hub_server, cache, "serve", "o/tiny-GGUF:Q8_0", "tiny", "--port", "0") as running:
        assert running.stdout is not None
        url = None
        for line in running.stdout:
            if line.startswith("Litegate listens on "):
                url = line.split()[-1]
            if "Ctrl-C stops it." in line:
                break
        assert url is not None, running.stderr.read() if running.stderr else ""
        models = get(f"{url}/v1/models")["data"]
        assert isinstance(models, list)
        assert [model["id"] for model in models] == ["o/tiny-GGUF:Q8_0", "tiny"]
        body = {"model": "o/tiny-GGUF:Q8_0", "input": "What is the capital of France?"}
        answer = post(f"{url}/v1/responses", {**body, "temperature": 0})
        assert "Paris" in json.dumps(answer["output"])
        running.send_signal(signal.SIGINT)
        assert running.wait(120) == 0
