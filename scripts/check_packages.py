#!/usr/bin/env python3
"""Build every package, install some in an empty environment outside the repository, and use them there.

Needs a package index for the dependencies. `--keep FOLDER` keeps the built wheels and source distributions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = """
import os, sys
from flit_core import buildapi
out = sys.argv[1]
for folder in sys.argv[2:]:
    os.chdir(folder)
    buildapi.build_wheel(out)
    buildapi.build_sdist(out)
"""
COMMANDS = ("chat", "conform", "doctor")
"""Commands of packages of their own, which `litegate[local]` installs."""
ASK = """
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
[model] = [each.id for each in client.models.list()]
answer = client.responses.create(model=model, input="What is the capital of France?", temperature=0)
assert "Paris" in answer.output_text, answer.output_text
with client.responses.stream(model=model, input="Hello", previous_response_id=answer.id) as stream:
    types = [event.type for event in stream]
assert types[0] == "response.created" and types[-1] == "response.completed", types
print(f"  the SDK is answered: {answer.output_text}")
"""


def folders() -> list[Path]:
    """The folders of all packages, the core first."""
    plugins = sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))
    engines = sorted(file.parent for file in ROOT.glob("backends/*/pyproject.toml"))
    return [ROOT, *plugins, *engines]


def run(command: Sequence[object], *, cwd: Path | None = None) -> str:
    """The standard output of a command. Prints its output and exits if it fails."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "GATEWAY_", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"failed: {command}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def environment(place: Path, *requirements: str, wheels: Path | None = None) -> Path:
    """The Python of a new environment with these packages installed."""
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    found = [] if wheels is None else ["--find-links", wheels]
    constraints = ["-c", ROOT / "constraints.txt"]
    run([python, "-m", "pip", "install", "-q", *found, *constraints, *requirements])
    return python


def check_contents(folder: Path, dist: Path) -> None:
    """Raise `AssertionError` if a built package lacks what it needs."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    with zipfile.ZipFile(dist / f"{stem}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        info = f"{stem}.dist-info"
        metadata: Message = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
        module = next(name.split("/")[0] for name in sorted(names) if name.startswith("gateway"))
        assert f"{info}/licenses/LICENSE" in names, f"{stem}: no LICENSE"
        assert f"{module}/py.typed" in names, f"{stem}: no py.typed"
        registers = f"{info}/entry_points.txt" in names
        promised = not project.keys().isdisjoint(("entry-points", "scripts"))
        assert registers == promised, f"{stem}: no entry point"
        assert metadata["License-Expression"] == "Apache-2.0", stem
        assert metadata["Requires-Python"] == ">=3.11", stem
        assert len(metadata.get_payload()) > 200, f"{stem}: no README"
        assert not any("/tests/" in name or "__pycache__" in name for name in names), stem
    with tarfile.open(dist / f"{stem}.tar.gz") as source:
        assert f"{stem}/LICENSE" in source.getnames(), f"{stem}: no LICENSE in the source"


def check_served(python: Path, place: Path) -> None:
    """Start `gateway serve` as a newcomer would, and ask it by OpenAI's SDK."""
    place.mkdir()
    command = [str(python.parent / "gateway"), "serve", "--port", "0"]
    with (place / "log").open("w") as log:
        begun = time.monotonic()
        server = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=log, text=True)
        assert server.stdout is not None
        url = next((line.split()[-1] for line in server.stdout if "listens on" in line), None)
        if url is None:
            sys.exit(f"gateway serve ended:\n{(place / 'log').read_text()}")
        print(f"  served after {time.monotonic() - begun:.1f} s")
        try:
            print(run([python, "-c", ASK, url.removesuffix("/v1")], cwd=place), end="")
        finally:
            server.terminate()
            code = server.wait(timeout=30)
    if code:
        sys.exit(f"gateway serve ended with {code}:\n{(place / 'log').read_text()}")


def main() -> None:
    """Run all checks. Exits with a message at the first failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    keep: Path | None = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        dist = work / "dist" if keep is None else keep.resolve()
        dist.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        builder = environment(work / "builder", "flit_core>=3.12,<4", "twine")
        run([builder, "-c", BUILD, dist, *folders()])
        for folder in folders():
            check_contents(folder, dist)
        run([builder, "-m", "twine", "check", "--strict", *sorted(dist.iterdir())])
        print(f"{len(folders())} packages are built and checked: {time.monotonic() - begun:.0f} s")

        begun = time.monotonic()
        python = environment(work / "local", "litegate[local]", "openai", wheels=dist)
        print(f"litegate[local] is installed: {time.monotonic() - begun:.0f} s")
        for command in COMMANDS:
            run([python.parent / "gateway", command, "--help"])
        check_served(python, work / "empty")
        places = json.loads(
            run(
                [python, "-c", "import gateway, json, gateway_memory as m; print(json.dumps([gateway.__file__, m.__file__]))"],
                cwd=work / "empty",
            )
        )  # fmt: skip
        assert all(str(work) in place for place in places), places

        run([python, "-m", "pip", "install", "-q", "--find-links", dist, "litegate[testing]"])
        run([python.parent / "gateway", "new", "tool", "weather"], cwd=work / "empty")
        made = work / "empty" / "gateway_weather"
        run([python, "-m", "pip", "install", "-q", "--find-links", dist, f"{made}[test]"])
        print(
            "a new plugin's contract:", run([python, "-m", "pytest", "-q", made]).splitlines()[-1]
        )

        bare = environment(work / "bare", "litegate", "litegate-llamacpp", wheels=dist)
        for asked in (("serve", "--port", "0"), *((command,) for command in COMMANDS)):
            done = subprocess.run(
                [bare.parent / "gateway", *asked],
                cwd=work,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            last = done.stderr.strip().splitlines()[-1]
            assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
            assert "pip install" in last, done.stderr
            print(f"litegate with litegate-llamacpp alone says to {asked[0]}: {last}")


if __name__ == "__main__":
    main()
