"""Every block of code of the manual is run, in the order of its page, as a reader would.

A comment on the line before a block says more than the block does:

- `<!-- not run: REASON -->`: the block cannot be run here, and why;
- `<!-- file: NAME -->`: the block is a file of the reader's folder;
- `<!-- serve -->`: the command goes on running; the next one is given when it is ready;
- `<!-- prints: TEXT -->`: the output contains TEXT.

`<!-- serve: COMMAND -->` on a line of its own starts what a page takes as running already.

TOML without a comment is checked against the schema of `gateway.toml`. The addresses of the pages, port 8000, are replaced.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from gateway_testing.free_ports import free_port

ROOT = Path(__file__).parents[2]
RUN_ELSEWHERE = {
    "docs/plugins.md": "tests/gateway/plugins/test_plugins_documentation.py",
    "docs/tools.md": "the tests of each tool's documentation in tests/plugins",
    "plugins/messages/README.md": "tests/plugins/messages/test_messages_documentation.py",
    "backends/scripted/README.md": "tests/backends/scripted",
}
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "docs/*.md", "plugins/*/README.md", "backends/*/README.md")
    for page in ROOT.glob(pattern)
)
BLOCK = re.compile(
    r"^<!-- serve: (?P<serve>[^\n]*) -->$|(?:^<!-- (?P<said>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
NOT_CODE = ("text", "console")
KNOWN = ("mermaid", "sh", "python", "toml", "json", "ini", "nginx", "yaml", *NOT_CODE)


@dataclass(frozen=True)
class Block:
    said: str
    language: str
    code: str

    @property
    def is_run(self) -> bool:
        return self.language in ("sh", "python") and not self.said.startswith("not run: ")


@cache
def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block("serve", "sh", found["serve"])
        if found["serve"]
        else Block(found["said"] or "", found["language"], found["code"])
        for found in BLOCK.finditer(text)
    ]


MANUAL = [page for page in PAGES if page not in RUN_ELSEWHERE]


@pytest.mark.parametrize("page", MANUAL)
def test_a_block_says_only_what_this_test_knows(page: str) -> None:
    for block in blocks(page):
        assert re.match(r"(not run: .+|file: [\w./-]+|serve|prints: .+|)$", block.said), block.said
        assert block.language in KNOWN, block.language
        if block.language == "yaml":
            assert isinstance(yaml.safe_load(block.code), dict)


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    command = [sys.executable, "-m", "gateway", "config", "schema"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return jsonschema.Draft202012Validator(json.loads(found.stdout))


@pytest.mark.parametrize("page", [*MANUAL, "docs/tools.md"])
def test_configuration_has_only_known_keys(
    page: str, schema: jsonschema.Draft202012Validator
) -> None:
    for block in blocks(page):
        if block.language == "toml" and block.said in ("", "file: gateway.toml"):
            assert [error.message for error in schema.iter_errors(tomllib.loads(block.code))] == []
        elif block.language == "json":
            values = block.code.splitlines() if block.code.count("\n{") else [block.code]
            assert all(isinstance(json.loads(value), dict | list) for value in values)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in MANUAL if any(block.is_run for block in blocks(page))]
)
def test_a_page_can_be_followed(page: str, tmp_path: Path) -> None:
    with Reader(tmp_path).following() as reader:
        for block in blocks(page):
            reader.reads(block)


class Reader:
    """Somebody with an empty folder and home, who does what a page says."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self.folder = home / "project"
        self.folder.mkdir()
        self.server: subprocess.Popen[bytes] | None = None
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GATEWAY_", "OPENAI_", "XDG_", "PYTEST_"))
        }
        self.environment = kept | {
            "HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GATEWAY_SERVER__PORT": str(self.port),
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.port}/v1",
        }

    @contextmanager
    def following(self) -> Iterator[Reader]:
        try:
            yield self
        finally:
            self.stop()

    def reads(self, block: Block) -> None:
        code = block.code.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        if block.said.startswith("file: "):
            file = self.folder / block.said.removeprefix("file: ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code, encoding="utf-8")
        elif block.is_run:
            command = (
                [sys.executable, "-c", code]
                if block.language == "python"
                else ["bash", "-euo", "pipefail", "-c", code]
            )
            if block.said == "serve":
                self.serve(command)
                return
            run = subprocess.run(
                command,
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert run.returncode == 0, f"{code}\n{run.stdout}\n{run.stderr}"
            if block.said.startswith("prints: "):
                assert block.said.removeprefix("prints: ") in run.stdout, (
                    f"{code}\n{run.stdout}\n{run.stderr}"
                )

    def serve(self, command: list[str]) -> None:
        self.stop()
        log = self.folder / "server.log"
        with log.open("wb") as output:
            self.server = subprocess.Popen(
                ["bash", "-c", f"exec env {command[-1]}"],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + 120
        while True:
            assert self.server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5):
                    return
            except OSError:
                time.sleep(0.1)

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=60)
            self.server = None
