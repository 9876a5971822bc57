"""Containers of an engine (docker, podman): what is asked of it, how they end, and what the agent keeps from the code in them.

There is no engine in the tests. A program in its place records what it is asked for, and runs the agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from gateway_container.config import ContainersConfig
from gateway_container.jail.spec import SandboxLimits
from gateway_container.sandbox import process as sandbox_process
from gateway_container.sandbox.answers import CommandResult
from gateway_container.sandbox.isolation import ContainerEngine
from gateway_container.sandbox.process import start_sandbox
from tests.waiting import wait_until_async

LIMITS = SandboxLimits(memory=2**28, disk=2**24, processes=32, open_files=64, cpu_seconds=20)
ENGINE = """#!{python}
import json, os, signal, sys, time
held = sorted(os.listdir("/proc/self/fd"))
with open({folder!r} + "/asked", "a") as file:
    file.write(json.dumps([os.getpid(), held, sorted(os.environ), sys.argv[1:]]) + "\\n")
if sys.argv[1] == "kill":
    {kill}
    sys.exit()
{run}
os.makedirs({folder!r} + "/data", exist_ok=True)
os.chdir({folder!r} + "/data")  # as in a container: the agent keeps the files of its folder
image = sys.argv.index("the-image")
os.execv(sys.executable, [sys.executable, *[each.replace("/tmp/.agent", {folder!r} + "/agent" + str(os.getpid())) for each in sys.argv[image + 1:]]])
"""


def stand_in(folder: Path, *, run: str = "", kill: str = "pass") -> ContainersConfig:
    engine = folder / "engine"
    engine.write_text(
        ENGINE.format(python=sys.executable, folder=str(folder), run=run, kill=kill),
    )
    engine.chmod(0o755)
    return ContainersConfig(isolation="engine", engine=str(engine), image="the-image")


def asked(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "asked").read_text().splitlines()]


async def run_in(config: ContainersConfig, name: str) -> CommandResult:
    sandbox = await start_sandbox(ContainerEngine(config), name, LIMITS, seconds=20)
    try:
        return await sandbox.ask(
            "run", CommandResult, seconds=10, command=["echo", "hi"], limit=100
        )
    finally:
        await sandbox.close()


def test_an_engine_gets_nothing_of_the_gateways_and_closes_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    assert asyncio.run(run_in(stand_in(tmp_path), "litegate-1")).stdout == "hi\n"
    run, kill = asked(tmp_path)
    assert run[1] == ["0", "1", "2", "3"], "its standard streams, and the folder that it looks at"
    assert "SECRET_TOKEN" not in run[2] + kill[2]
    command = " ".join(run[3][: run[3].index("the-image")])
    for option in (
        "--network none",
        "--ipc private",
        "--cgroupns private",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--user 1000:1000",
        "--pull never",
        "--entrypoint python3",
        "--log-driver none",
        "--no-healthcheck",
        "--rm",
        "--pids-limit 33",
        "--memory 268435456 --memory-swap 268435456",
    ):
        assert option in command
    for refused in (
        "--privileged",
        "--volume",
        " -v ",
        "--mount",
        "--pid ",
        "--device",
        "--cap-add",
    ):
        assert refused not in command
    for folder in ("/mnt/data", "/tmp"):
        assert f"--tmpfs {folder}:rw,exec,nosuid,nodev,size=16777216" in command
    assert kill[3] == ["kill", "litegate-1"]


def test_docker_knows_every_option() -> None:
    """It reads them before it looks for its daemon."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    config = ContainersConfig(engine="docker", image="no.such.registry.invalid/image")
    command = ContainerEngine(config).launch("litegate-options", LIMITS).command
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 125
    for complaint in ("unknown", "invalid argument", "conflicting", "requires"):
        assert complaint not in run.stderr


def test_a_container_that_does_not_end_is_killed_by_its_name(tmp_path: Path) -> None:
    run = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    assert asyncio.run(run_in(stand_in(tmp_path, run=run), "litegate-2")).stdout == "hi\n"
    first, kill = asked(tmp_path)
    assert kill[3] == ["kill", "litegate-2"]
    assert not Path(f"/proc/{first[0]}").exists()


def test_an_engine_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_process, "_TO_TIDY_UP", 0.3)
    config = stand_in(tmp_path, kill="time.sleep(600)")
    started = time.monotonic()
    asyncio.run(run_in(config, "litegate-3"))
    assert time.monotonic() - started < 60
    assert not Path(f"/proc/{asked(tmp_path)[-1][0]}").exists()


def test_a_start_that_is_cancelled_leaves_no_container(tmp_path: Path) -> None:
    config = stand_in(
        tmp_path, run="signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    )

    async def cancelled() -> None:
        starting = asyncio.create_task(
            start_sandbox(ContainerEngine(config), "litegate-4", LIMITS, seconds=600)
        )
        file = tmp_path / "asked"
        await wait_until_async(
            lambda: file.exists() and file.read_text().endswith("\n"), "its line"
        )
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)

    asyncio.run(cancelled())
    run, kill = asked(tmp_path)
    assert kill[3] == ["kill", "litegate-4"]
    assert not Path(f"/proc/{run[0]}").exists()


def test_each_start_of_a_container_has_a_name_of_its_own(
    gateway_server: Any, tmp_path: Path
) -> None:
    """What the engine has of the last one may be there still, and other worker processes have one each."""
    config = stand_in(tmp_path)
    call = {"call": {"name": "shell", "arguments": {"commands": ["true"]}}}
    rules = [
        {"when": "begin", "pieces": [call]},
        {"when": "tool_response>", "pieces": [{"text": "Done."}]},
    ]
    gateway = gateway_server(
        {
            "models": {
                "m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}
            },
            "tools": {"container": {}},
            "resources": {
                "containers": {
                    "isolation": "engine",
                    "engine": config.engine,
                    "image": config.image,
                    "keep_running": 0,
                }
            },
        }
    )
    with gateway.client() as client:
        container = client.containers.create(name="c").id
        environment = {"type": "container_reference", "container_id": container}
        for _ in range(2):
            answer = client.responses.create(
                model="m", input="begin", tools=[{"type": "shell", "environment": environment}]
            )
            assert answer.output_text == "Done."
    names = [words[words.index("--name") + 1] for _, _, _, words in asked(tmp_path) if words[0] == "run"]  # fmt: skip
    assert len(names) == 3, "one to try the engine, two for the calls"
    assert len(set(names)) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="another user, as in a container, takes root")
def test_the_agent_of_a_container_hides_from_the_code_without_our_filter(tmp_path: Path) -> None:
    """As the first processes of a PID namespace, by a user of no rights; the filter of system calls is the engine's there."""
    if not os.access("/usr/bin/python3", os.X_OK) or shutil.which("setpriv") is None:
        pytest.skip("there is no interpreter that everybody may run, or no setpriv")
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        for pid in (1, os.getppid()):
            for name in ('mem', 'environ', 'fd/1', 'fd/3', 'fd/4'):
                try: open('/proc/%d/%s' % (pid, name), 'rb').close()
                except OSError as error: print(pid, name, error.errno)
                else: print('REACHED', pid, name)
            for request in (16, 0x4206):
                print('REACHED ptrace' if libc.ptrace(request, pid, 0, 0) == 0 else 'refused')
        os.kill(os.getppid(), 0)
        print('o' + 'ver', os.getuid(), os.getppid())
        """
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    place = tmp_path / "agent"
    place.mkdir()
    place.chmod(0o777)
    words = ContainerEngine(ContainersConfig(engine="x", image="y")).launch("n", LIMITS).command
    program = [each.replace("/tmp/.agent", f"{place}/laid") for each in words[words.index("y") + 1 :]]  # fmt: skip
    command = [
        "unshare", "--pid", "--fork", "--mount-proc", "setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups",
        "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "/usr/bin/python3", *program,
    ]  # fmt: skip
    request = {"id": 1, "do": "cell", "seconds": 20, "code": textwrap.dedent(code), "limit": 9000}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=place, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready:
            pytest.skip("no PID namespace can be made here")
        assert json.loads(ready) == {"id": 0, "ready": True}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        logs = json.loads(process.stdout.readline())["logs"]
    assert "REACHED" not in logs
    assert "over 1000 2" in logs, "the agent is the child of the first process"
    assert process.returncode == 0, "both end when the gateway leaves"
