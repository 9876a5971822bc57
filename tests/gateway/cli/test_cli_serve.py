"""`gateway serve` as a process: it says what to paste, what it says works, and Ctrl-C ends it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from gateway_testing.server import run_gateway

CONFIG = '[server]\nport = 0\n[models.m]\nengine = "scripted"\n'


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running server and what it has printed, up to the end of the banner."""
    (tmp_path / "gateway.toml").write_text(CONFIG)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_")}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "gateway", "serve"],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        printed = ""
        end = time.monotonic() + 120
        while "Ctrl-C stops it." not in printed:
            ready, _, _ = select.select([process.stdout], [], [], max(0, end - time.monotonic()))
            # Not by lines: what a buffer has taken in already, `select` does not see.
            more = os.read(process.stdout.fileno(), 65536) if ready else b""
            assert more, (tmp_path / "log").read_text()
            printed += more.decode()
        yield process, printed
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_it_says_can_be_pasted_and_ctrl_c_ends_it(
    served: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, printed = served
    assert re.search(r"^In a browser: http://127.0.0.1:\d+$", printed, re.MULTILINE)
    snippet = re.search(r"^    from openai .*?\n\n", printed, re.MULTILINE | re.DOTALL)
    assert snippet is not None
    said = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(said):
        exec(textwrap.dedent(snippet[0]), names)
    names["client"].close()  # type: ignore[attr-defined]
    assert said.getvalue().strip()

    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 0
    log = (tmp_path / "log").read_text()
    assert "opening m with the engine scripted (named in the configuration)" in log
    assert "Traceback" not in log


def test_a_running_server_does_not_import_the_kits_for_tests(
    served: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, printed = served
    root = re.search(r"http://[\d.:]+", printed)
    assert root is not None
    with OpenAI(base_url=f"{root[0]}/v1", api_key="none") as client:
        with client.responses.stream(model="m", input="Hello!") as stream:
            assert stream.get_final_response().output_text
        assert client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hello!"}]
        ).choices
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "gateway.answers.responses.answer" in modules
    kits = [name for name in modules if re.match(r"gateway_testing|pytest|hypothesis", name)]
    assert not kits


@pytest.mark.slow
def test_a_model_of_a_server_elsewhere_is_served_by_its_url(tmp_path: Path) -> None:
    upstream = '[models."big/model"]\nengine = "scripted"\n'
    with run_gateway(upstream, tmp_path) as running, (tmp_path / "log").open("w") as log:
        url = f"{running.base_url}#big/model"
        (tmp_path / "here").mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", url, "--engine", "openai", "--port", "0"],
            cwd=tmp_path / "here",
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            lines = (line for line in process.stdout if line.startswith("Litegate listens on "))
            here = next(lines, None)
            assert here is not None, (tmp_path / "log").read_text()
            with OpenAI(base_url=f"{here.split()[-1]}/v1", api_key="none") as client:
                assert client.responses.create(model="big/model", input="Hello!").output_text
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
