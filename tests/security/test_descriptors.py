"""A child process holds no descriptor but those meant for it: looked at in /proc, for every kind of child of a running server."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.process.descriptors import close_all_on_exec
from gateway.process.event_loop import new_event_loop
from gateway_testing.free_ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="descriptors are read from /proc"
)

# The server.

CONFIG = """
[server]
port = {port}
workers = {workers}
grace_period = 1
store = "none"
[models.m]
engine = "scripted"
parser = "qwen3"
[models.m.scripted]
rules = [
  { when = "please wait", pieces = [{ call = { name = "python", arguments = { code = "import time; time.sleep(60)" } } }] },
  { when = "shell please", pieces = [{ call = { name = "shell", arguments = { commands = ["sleep 60"] } } }] },
  { when = "tell me", pieces = [{ call = { name = "told", arguments = {} } }] },
  { when = "descriptors", pieces = [{ text = "Told." }] },
]
[tools.python]
[tools.container]
[tools.file_search]
[tools.mcp.servers.ex]
command = ["{python}", "{mcp}"]
"""
MCP = """
import os
links = {}
for name in os.listdir("/proc/self/fd"):
    try:
        links[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        pass  # that of the folder itself
from mcp.server.mcpserver import MCPServer
server = MCPServer("ex")
@server.tool()
def told() -> str:
    # uvloop leaves a program its standard streams twice.
    own = [links[number] for number in (0, 1, 2)]
    return f"descriptors: {[link for link in links.values() if link not in own]}"
server.run("stdio")
"""


VLLM = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "fork",  # what a user might set: it is not taken
}


class Server:
    """A gateway process, and all its descendants."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = log

    def ask(self, said: str, tool: dict[str, Any]) -> httpx.Response:
        body = {"model": "m", "input": said, "tools": [tool]}
        return httpx.post(f"{self.url}/v1/responses", json=body, timeout=60)

    def descendants(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for entry in filter(lambda each: each.name.isdigit(), Path("/proc").iterdir()):
            with suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        found, left = [], [self.process.pid]
        while left:
            left += (below := children.get(left.pop(), []))
            found += below
        return found


def ready(server: Server) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{server.url}/ready", timeout=30).status_code == 200
    return False


@contextmanager
def serving(folder: Path, workers: int, config: str = CONFIG) -> Iterator[Server]:
    port = free_port()
    (folder / "mcp_server.py").write_text(MCP)
    words = {"port": port, "workers": workers, "python": sys.executable, "mcp": folder / "mcp_server.py"}  # fmt: skip
    text = config
    for name, value in words.items():
        text = text.replace("{" + name + "}", str(value))
    (folder / "gateway.toml").write_text(text)
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(folder / "gateway.toml")],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")}, **VLLM},
        )
    server = Server(process, port, log)
    try:
        wait_until(lambda: process.poll() is not None or ready(server), "the server's start", 180)
        if "cannot keep code apart" in log.read_text():
            pytest.skip("this machine cannot keep code apart")
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# What is looked at.


def tcp_sockets() -> set[str]:
    """The sockets of the network, as the links in `/proc/<pid>/fd` name them."""
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{table}", encoding="ascii") as lines:
            next(lines)
            found |= {f"socket:[{line.split()[9]}]" for line in lines}
    return found


def descriptors(process: int) -> dict[int, str]:
    """Each with what it leads to."""
    found = {}
    folder = f"/proc/{process}/fd"
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):
            found[int(name)] = os.readlink(f"{folder}/{name}")
    return found


def command_line(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def same_file(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two descriptors of two processes are one open file."""
    number = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
    if number is None:
        pytest.skip("the number of kcmp is not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (number, one[0], other[0], 0, one[1], other[1])
    result: int = libc.syscall(*(ctypes.c_long(each) for each in arguments))
    return result == 0


def kind(process: int) -> str:
    """Of a child, by what it runs."""
    command = command_line(process)
    if "jail.keeper" in command:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            parent = int(file.read().rpartition(")")[2].split()[1])
        return "first" if "jail.keeper" in command_line(parent) else "keeper"
    for name, mark in (
        ("agent", "inside.agent"), ("cells", "inside/interpreter.py"), ("shell", "sleep 60"),
        ("mcp", "mcp_server.py"), ("tracker", "resource_tracker"), ("worker", "spawn_main"),
    ):  # fmt: skip
        if mark in command:
            return name
    return command


class Sampler(threading.Thread):
    """Looks at all descendants as often as it can: some live for moments only."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._ended = threading.Event()
        self.seen: dict[int, set[str]] = {}
        """What each has held, standard streams aside."""

    def run(self) -> None:
        own = command_line(self._server.process.pid)
        while not self._ended.is_set():
            for process in self._server.descendants():
                with suppress(OSError):
                    # Looked at first: before it runs its program, a child is a copy of its parent.
                    if command_line(process) == own or kind(process) == "worker":
                        continue
                    held = descriptors(process)
                    self.seen.setdefault(process, set()).update(
                        link for number, link in held.items() if number > 2
                    )

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into processes that hide")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_a_child_process_holds_no_descriptor_but_its_own(tmp_path: Path, workers: int) -> None:
    """While the server listens, has open connections, runs cells, commands and an MCP server, and reads documents."""
    code = {"type": "code_interpreter", "container": {"type": "auto"}}
    shell = {"type": "shell", "environment": {"type": "container_auto"}}
    with serving(tmp_path, workers) as server, ExitStack() as stack:
        for _ in range(8):  # clients that say nothing yet, at whichever worker
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        answer = server.ask("tell me", {"type": "mcp", "server_label": "ex"})
        assert answer.status_code == 200, answer.text
        assert "descriptors: []" in answer.text, answer.text
        for said, tool in (("please wait", code), ("shell please", shell)):
            threading.Thread(target=quietly, args=(server, said, tool), daemon=True).start()
        wanted = {"keeper", "first", "agent", "cells", "shell", "mcp"}
        if workers > 1:
            wanted |= {"worker", "tracker"}

        def kinds() -> dict[int, str] | None:
            found = {pid: name for pid in server.descendants() if (name := told_kind(pid))}
            assert wanted <= set(found.values()), found
            return found

        found = wait_until(kinds, "all kinds of processes run")
        assert found is not None

        network = tcp_sockets()
        holders = {pid for pid, name in found.items() if name == "worker"} or {server.process.pid}
        listening = {link for pid in holders for link in descriptors(pid).values()} & network
        assert listening, "the look would see the sockets of the server"
        above = {server.process.pid, *holders}
        for pid, name in found.items():
            if name == "worker":
                continue
            held = descriptors(pid)
            assert not set(held.values()) & network, (name, held)
            streams = {held.get(number) for number in (0, 1, 2)}
            for other in above:
                shared = [
                    number
                    for number, link in held.items()
                    for theirs in descriptors(other)
                    if link not in streams and same_file((pid, number), (other, theirs))
                ]
                assert not shared, (name, held)
            if name in ("keeper", "first"):
                assert not held, (name, held)
            if name == "shell":
                assert set(held) <= {0, 1, 2}, held
        if workers > 1:
            one, other = sorted(holders)
            mine, theirs = descriptors(one), descriptors(other)
            both = set(mine.values()) & set(theirs.values()) & network
            assert len(both) == 1, (
                f"the workers share the listening socket and no connection: {both}"
            )
            for worker in holders:
                for number in descriptors(worker):
                    assert number < 3 or not inheritable(worker, number), (worker, number)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into processes that hide")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_the_readers_of_documents_hold_no_descriptor_of_the_server(
    tmp_path: Path, workers: int
) -> None:
    with serving(tmp_path, workers) as server, ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        known = set(server.descendants())
        page = b"<title>x</title>" + b"<p>some <b>words</b> of a page</p>" * 60_000
        with Sampler(server) as sampler, httpx.Client(base_url=server.url, timeout=60) as http:
            files = {"file": ("page.html", page)}
            upload = http.post("/v1/files", data={"purpose": "user_data"}, files=files)
            assert upload.status_code == 200, upload.text
            network = tcp_sockets()
            store = http.post("/v1/vector_stores", json={"file_ids": [upload.json()["id"]]})
            assert store.status_code == 200, store.text

            def read() -> bool:
                state = http.get(f"/v1/vector_stores/{store.json()['id']}")
                return state.status_code == 200 and not state.json()["file_counts"]["in_progress"]

            wait_until(read, "the file is read")
            network |= tcp_sockets()
        for process, held in sampler.seen.items():
            assert not held & network, process
        assert set(sampler.seen) - known, "a reader was seen"


VLLM_CONFIG = """
[server]
port = {port}
store = "none"
grace_period = 1
[models.m]
engine = "vllm"
path = "{model}"
[models.m.vllm]
max_model_len = 256
enforce_eager = true
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into processes that hide")
@pytest.mark.slow
def test_the_processes_of_vllm_hold_no_descriptor_of_the_server(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    model = Path(__file__).parents[1] / "models" / "tiny-qwen3"
    config = VLLM_CONFIG.replace("{model}", str(model))
    with serving(tmp_path, 1, config) as server, ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        body = {"model": "m", "prompt": "Hello", "max_tokens": 5}
        assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200
        own = {link for link in descriptors(server.process.pid).values() if "socket:" in link}
        assert own & tcp_sockets()
        children = server.descendants()
        assert children, "vLLM's engine, and multiprocessing's tracker"
        for child in children:
            theirs = {link for link in descriptors(child).values() if "socket:" in link}
            assert not theirs & own, (command_line(child), theirs & own)


def quietly(server: Server, said: str, tool: dict[str, Any]) -> None:
    """The server ends before the answer comes."""
    with suppress(httpx.HTTPError):
        server.ask(said, tool)


def told_kind(process: int) -> str | None:
    try:
        return kind(process)
    except OSError:
        return None  # it has ended


def inheritable(process: int, descriptor: int) -> bool:
    lines = Path(f"/proc/{process}/fdinfo/{descriptor}").read_text().splitlines()
    flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
    return not int(flags, 8) & os.O_CLOEXEC


# The parts.


def test_the_event_loop_starts_programs_without_inheritable_descriptors(tmp_path: Path) -> None:
    """Such as a library in C has opened, or a plugin has made so."""
    with open(tmp_path / "secret", "w") as file:
        os.set_inheritable(file.fileno(), True)

        async def listed(*how: str) -> bytes:
            process = await asyncio.create_subprocess_exec(
                *how, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            return output

        async def shelled() -> bytes:
            process = await asyncio.create_subprocess_shell(
                "ls -l /proc/self/fd", stdout=asyncio.subprocess.PIPE
            )
            return (await process.communicate())[0]

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            assert b"secret" not in runner.run(listed("ls", "-l", "/proc/self/fd"))
            assert b"secret" not in runner.run(shelled())


def test_marking_closes_all_but_the_standard_streams_on_exec() -> None:
    code = """
import os
from gateway.process import descriptors
for mark in (descriptors.close_all_on_exec, descriptors._mark_one_by_one):
    made = os.dup(0)
    os.set_inheritable(made, True)
    mark()
    print(os.get_inheritable(made), os.get_inheritable(0))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False True\n" * 2
    close_all_on_exec()  # may be called at any time


def test_the_keeper_closes_what_it_inherits(tmp_path: Path) -> None:
    """A gateway that an embedding program runs on a loop of its own: nothing was marked there."""
    from gateway_container.config import ContainersConfig
    from gateway_container.sandbox.answers import CommandResult
    from gateway_container.sandbox.choice import choose_isolation, limits_of
    from gateway_container.sandbox.process import start_sandbox

    uvloop = pytest.importorskip("uvloop")
    config = ContainersConfig(unsafe=True)

    async def look() -> tuple[str, str]:
        isolation = await choose_isolation(config)
        sandbox = await start_sandbox(isolation, "litegate-fds", limits_of(config), seconds=20)
        try:
            command = ["/bin/sh", "-c", "ls -l /proc/self/fd"]
            ran = await sandbox.ask("run", CommandResult, seconds=10, command=command, limit=9000)
            keeper = str(descriptors(sandbox.process_id)) if os.geteuid() == 0 else ""
            return ran.stdout, keeper
        finally:
            await sandbox.close()

    with open(tmp_path / "secret", "w") as file, socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.readlink(f"/proc/self/fd/{server.fileno()}")
        os.set_inheritable(file.fileno(), True)
        server.set_inheritable(True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for seen in runner.run(look()):
                assert "secret" not in seen
                assert inode not in seen
