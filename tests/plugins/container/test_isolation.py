"""What keeps sandboxes apart is chosen at start: the best that there is, and never nothing in silence."""

from __future__ import annotations

import asyncio
import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.base.errors import ConfigurationError
from gateway_container.config import MIB, ContainersConfig
from gateway_container.jail.seccomp import make_filter, refused_syscalls
from gateway_container.jail.spec import SandboxLimits
from gateway_container.sandbox.choice import choose_isolation
from gateway_container.sandbox.isolation import ContainerEngine, Isolation, Jail
from tests.waiting import wait_until

PROBE = """
    import asyncio, logging, sys
    from gateway.base.errors import ConfigurationError
    from gateway.sdk import SessionContext, ToolCall
    from gateway_container.config import ContainerConfig, ContainersConfig
    from gateway_container.plugin import open_resource, open_shells

    async def main():
        config = ContainersConfig(unsafe='unsafe' in sys.argv)
        async with open_resource(config) as containers:
            async with (
                open_shells(ContainerConfig(), containers=containers) as server,
                server.session(SessionContext()) as session,
            ):
                command = 'id -u; sleep 1000.0731 & setsid sleep 1001.0731 & pwd'
                print((await session.call(ToolCall('shell', {'commands': [command]}))).text)

    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format='%(levelname)s %(message)s')
    try:
        asyncio.run(main())
    except ConfigurationError as error:
        print('refused:', error)
    """


def probe(*words: str, before: str = "true", users: tuple[str, ...] = ("-r",)) -> str:
    """What the tool says, opened in a user namespace of its own after the shell command `before`."""
    if shutil.which("unshare") is None:
        pytest.skip("util-linux's unshare is not installed")
    line = f'{before}; exec "$0" "$@"'
    command = ["unshare", "-U", *users, "sh", "-c", line]
    if subprocess.run([*command[:-1], before], capture_output=True).returncode:
        pytest.skip("user namespaces are not to be had here, or not of that kind")
    run = subprocess.run(
        [*command, sys.executable, "-c", textwrap.dedent(PROBE), *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


NO_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces"


def test_without_namespaces_it_refuses_to_start() -> None:
    said = probe(before=NO_NAMESPACES)
    assert said.startswith("refused: [resources.containers]: this machine cannot keep code apart")
    assert "namespaces: " in said
    assert "unsafe = true" in said


def test_unsafe_is_said_in_those_words_and_logged() -> None:
    said = probe("unsafe", before=NO_NAMESPACES)
    assert "WARNING containers: code is kept apart by NOTHING but resource limits" in said
    assert said.splitlines()[-2] == "0"
    folder = Path(said.splitlines()[-1])
    assert folder.name.startswith("litegate-")
    assert not folder.exists(), "its folder goes with it"
    wait_until(
        lambda: not any(b".0731" in line for line in command_lines()), "its processes have ended"
    )


def command_lines() -> list[bytes]:
    found: list[bytes] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return found


def test_a_gateway_without_rights_has_namespaces_too(isolation: Isolation) -> None:
    said = probe(users=("--map-user=1000", "--map-group=1000"))
    assert "INFO containers: code is kept apart by namespaces" in said
    assert said.splitlines()[-2:] == ["1000", "/mnt/data"]


def test_unsafe_is_not_taken_where_there_is_better(isolation: Isolation) -> None:
    chosen = asyncio.run(choose_isolation(ContainersConfig(unsafe=True)))
    assert "namespaces" in chosen.description


def test_an_engine_that_is_not_there_is_named() -> None:
    config = ContainersConfig(isolation="engine", engine="no-such-engine", image="python")
    with pytest.raises(
        ConfigurationError, match=r"container engine 'no-such-engine' .*cannot be started"
    ):
        asyncio.run(choose_isolation(config))


def engine_that_says(folder: Path, *lines: str) -> ContainersConfig:
    """A container engine that fails as it starts a container."""
    engine = folder / "engine"
    said = "\n".join(f"echo '{line}' >&2" for line in lines)
    engine.write_text(f"#!/bin/sh\n{said}\nexit 125\n")
    engine.chmod(0o755)
    return ContainersConfig(isolation="engine", engine=str(engine), image="python")


def test_an_engine_without_a_daemon_stops_the_start_with_its_own_words(tmp_path: Path) -> None:
    config = engine_that_says(
        tmp_path, "", "Cannot connect to the daemon. Is it running?", "Run help"
    )
    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(choose_isolation(config))
    assert str(caught.value) == (
        f"[resources.containers]: the container engine '{tmp_path}/engine' cannot start a container (Cannot connect to "
        "the daemon. Is it running?). Start the engine, or choose another `isolation`."
    )


def test_docker_without_a_daemon_says_so() -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    if subprocess.run(["docker", "version"], capture_output=True).returncode == 0:
        pytest.skip("docker has its daemon here")
    config = ContainersConfig(isolation="engine", engine="docker", image="python:3.12-slim")
    with pytest.raises(
        ConfigurationError, match=r"'docker' cannot start a container \(.*[Dd]aemon"
    ):
        asyncio.run(choose_isolation(config))


def test_an_engine_is_asked_for_a_closed_container() -> None:
    config = ContainersConfig(engine="podman", image="python:3.12-slim")
    limits = SandboxLimits(memory=1, disk=2, processes=3, open_files=4, cpu_seconds=5)
    launch = ContainerEngine(config).launch("litegate-1", limits)
    command = " ".join(launch.command[: launch.command.index("python:3.12-slim")])
    for option in (
        "podman run --rm --interactive",
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--memory 1 --memory-swap 1",
        "--pids-limit 4",
        "--log-driver none",
        "--pull never",
        "--entrypoint python3",
        "--ipc private",
        "--cgroupns private",
        "--user 1000:1000",
    ):
        assert option in command
    assert launch.end == ["podman", "kill", "litegate-1"]
    compile(launch.command[-1], "the agent's loader", "exec")


def test_the_program_of_an_engine_is_the_agent(tmp_path: Path) -> None:
    """What the image's Python is given runs: here with this Python, in a folder in place of the image."""
    launch = ContainerEngine(ContainersConfig(engine="x", image="y")).launch(
        "litegate-1", SandboxLimits(memory=1, disk=1, processes=1, open_files=1, cpu_seconds=1)
    )
    code = launch.command[-1].replace("/tmp/.agent", str(tmp_path / "agent"))
    request = b'{"id": 1, "do": "run", "seconds": 60, "command": ["echo", "hi"], "limit": 100}\n'
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert msgspec.json.decode(process.stdout.readline()) == {"id": 0, "ready": True}
        process.stdin.write(request)
        process.stdin.flush()
        assert msgspec.json.decode(process.stdout.readline())["stdout"] == "hi\n"
    assert process.returncode == 0, "it ends when the gateway leaves"


@pytest.mark.parametrize(
    "wrong",
    [
        {"isolation": "engine"},
        {"engine": "docker"},
        {"image": "python"},
        {"python": "python3"},
        {"readable": ["data"]},
        {"isolation": "none"},
        {"max_memory_bytes": 1},
        {"unsafe": "yes"},
        {"keep_running": -1},
        {"expiry_minutes": 2000},
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, ContainersConfig)


def test_a_python_that_is_none_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="/no/such/python"):
        Jail(ContainersConfig(python="/no/such/python"), namespaces=True)


def test_a_virtual_environment_is_readable_with_what_it_was_made_from(
    isolation: Isolation, tmp_path: Path
) -> None:
    """`python` names it; its packages can be imported."""
    from gateway_container.sandbox.answers import CellResult
    from gateway_container.sandbox.process import start_sandbox

    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "only_in_this_one.py").write_text("answer = 42\n")
    tmp_path.chmod(0o755)
    config = ContainersConfig(python=str(home / "bin" / "python"))
    limits = SandboxLimits(memory=256 * MIB, disk=MIB, processes=32, open_files=64, cpu_seconds=20)

    async def run() -> str:
        sandbox = await start_sandbox(
            Jail(config, namespaces=True), "litegate-venv", limits, seconds=60
        )
        try:
            code = "import only_in_this_one as o; print(o.answer)"
            return (await sandbox.ask("cell", CellResult, seconds=60, code=code, limit=1000)).logs
        finally:
            await sandbox.close()

    assert asyncio.run(run()) == "42\n"


# The filter of system calls.


def run_filter(program: bytes, number: int, architecture: int, argument: int = 0) -> int:
    """What the filter says of a call, by the rules of classic BPF."""
    data = struct.pack("=IIQQ", number, architecture, 0, argument)
    steps = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, then, otherwise, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += then if accumulator == value else otherwise
            case 0x25:
                at += then if accumulator > value else otherwise
            case 0x45:
                at += then if accumulator & value else otherwise
            case 0x06:
                return int(value)


@pytest.mark.parametrize(
    ("machine", "architecture", "read", "clone"),
    [("x86_64", 0xC000003E, 0, 56), ("aarch64", 0xC00000B7, 63, 220)],
)
def test_the_filter_refuses_what_it_lists_and_nothing_else(
    machine: str, architecture: int, read: int, clone: int
) -> None:
    program = make_filter(machine)
    allowed, no, later, kill = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
    listed = set(refused_syscalls(machine).values())
    for number in range(451):
        expected = later if number == 435 else no if number in listed else allowed
        assert run_filter(program, number, architecture) == expected, number
    assert read not in listed
    assert run_filter(program, 451, architecture) == later
    assert run_filter(program, 0x40000000, architecture) == later
    assert run_filter(program, read, 0x40000003) == kill


def test_the_arguments_that_are_looked_at_are_the_calls_own() -> None:
    program = make_filter("x86_64")
    steps = list(struct.iter_unpack("=HBBI", program))
    loads = [value for code, _, _, value in steps if code == 0x20]
    assert loads == [4, 0, 16], "architecture, number, first argument: of `struct seccomp_data`"
