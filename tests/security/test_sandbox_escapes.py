"""What a model may try to get out of its sandbox, by the tools that it has. The attempts are in `sandbox_escapes.toml`.

A real server runs them, as a process with keys, secrets and open connections. Each attempt prints what it reaches; besides,
nothing of the host has changed afterwards, no secret has come out, nobody was connected to, and another client's container
goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_container.jail.seccomp import is_known, refused_syscalls
from gateway_testing.free_ports import free_port
from gateway_testing.server import to_toml
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not is_known(), reason="system calls have other numbers here")

ATTEMPTS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("sandbox_escapes.toml").read_text(encoding="utf-8")
)["attempt"]
CANARY = "CANARY-" + secrets.token_hex(8)
"""What is secret: in files, the environment, the configuration and another container."""
PRELUDE = """
import ctypes, os, sys
_before = set(os.listdir('/proc/self/fd'))
NR = {numbers}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
def number_call(number, *arguments):
    result = _libc.syscall(ctypes.c_long(number), *[each if isinstance(each, ctypes.c_char_p) else ctypes.c_long(each) for each in arguments])
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def call(name, *arguments): return number_call(NR[name], *arguments)
def tried(what, do):
    try: result = do()
    except BaseException as error: print(what, '->', type(error).__name__, str(error)[:60])
    else: print('REACHED', what, repr(result)[:100])
def show(path):
    try: print(path, repr(open(path, 'rb').read(20000)))
    except OSError as error: print(path, '->', error.strerror)
"""
EPILOGUE = """
for _number in range(3, 128):
    try: str(_number) in _before or os.close(_number)
    except OSError: pass
"""
"""The next attempt has all of its descriptors."""
MORE = {"x86_64": {"clone": 56, "clone3": 435}, "aarch64": {"clone": 220, "clone3": 435}}
DONE = "ATTEMPT-" + "IS-OVER"
LONG = 300.0
"""Seconds for a request: longer than the server's own limits, which end it."""


class Host:
    """A server, what it has to hide, and what it must not be connected to."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        for each in (folder, *folder.parents[:2]):
            each.chmod(0o755)  # nothing but the sandbox is in the way
        self.folder = folder
        self.secret = folder / "secret-canary.txt"
        self.secret.write_text(CANARY)
        self.secret.chmod(0o644)
        self.config = folder / "gateway.toml"
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        self._unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        self._abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        self.abstract = "litegate-" + secrets.token_hex(4)
        self._abstract.bind("\0" + self.abstract)
        self._unix.listen()
        self._abstract.listen()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._write()
        log = stack.enter_context((folder / "log").open("wb"))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(self.config)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CANARY_TOKEN": CANARY},
        )
        stack.callback(end, self.process)
        self._wait()
        self.before = self.state()

    def _write(self) -> None:
        (self.folder / "scenario.json").write_text(json.dumps(self._rules()))
        # What never ends takes all of it; the rest ends long before, on a slow machine too.
        limits = {"time_limit": 30, "max_output_bytes": 16_384}
        config = {
            "server": {
                "port": self.port,
                "grace_period": 1,
                "api_keys": [
                    {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest()}
                    for name in ("attacker", "victim")
                ],
            },
            "models": {
                "m": {
                    "engine": "scripted",
                    "parser": "qwen3",
                    "path": str(self.folder / "scenario.json"),
                }
            },
            "tools": {"python": limits, "container": limits},
            "resources": {
                "containers": {
                    "path": str(self.folder / "containers"),
                    "max_memory_bytes": 256 << 20,
                    "max_disk_bytes": 16 << 20,
                    "max_processes": 32,
                    "max_open_files": 128,
                    "start_timeout": 60,
                    "keep_running": 600,
                }
            },
        }
        self.config.write_text(f"# {CANARY}\n" + to_toml(config))
        self.config.chmod(0o644)

    def _rules(self) -> list[dict[str, Any]]:
        """What the model does: each attempt is one call. After it, the model has nothing more to say."""
        numbers = {**refused_syscalls(), **MORE[platform.machine()]}
        places = {
            "{secret}": str(self.secret),
            "{config}": str(self.config),
            "{folder}": str(self.folder),
            "{near}": str(max(2000, os.getpid() - 50)),
            "{port}": str(self.port),
            "{listener}": str(self._listening.getsockname()[1]),
            "{socket}": str(self.folder / "socket"),
            "{abstract}": self.abstract,
        }

        def call(attempt: dict[str, Any]) -> dict[str, Any]:
            code: str = attempt["code"]
            for name, place in places.items():
                code = code.replace(name, place)
            if attempt["tool"] == "shell":
                lines = f"{code}\necho {DONE[:8]}''{DONE[8:]}"
                return {"name": "shell", "arguments": {"commands": [lines]}}
            prelude = PRELUDE.replace("{numbers}", repr(numbers))
            whole = f"{prelude}\n{code}\n{EPILOGUE}\nprint({DONE[:8]!r} + {DONE[8:]!r})"
            return {"name": "python", "arguments": {"code": whole}}

        def python(code: str) -> list[dict[str, Any]]:
            return [{"call": {"name": "python", "arguments": {"code": code}}}]

        return [
            *(
                {"when": f"attempt {number:03d}", "pieces": [{"call": call(attempt)}]}
                for number, attempt in enumerate(ATTEMPTS)
            ),
            {"when": "are you alive", "pieces": python("print('alive', 6 * 7)")},
            {"when": "keep this", "pieces": python(f"kept = {CANARY!r}\nopen('kept.txt', 'w').write(kept)")},
            {"when": "do you have it", "pieces": python("print(kept == open('kept.txt').read())")},
            {"when": "tool_response>", "pieces": [{"text": "That is all."}]},
        ]  # fmt: skip

    def _wait(self) -> None:
        def ready() -> bool:
            if self.process.poll() is not None:
                return True
            with suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/ready", timeout=30).status_code == 200
            return False

        wait_until(ready, "the gateway's start", 120)
        if self.process.poll() is None:
            return
        log = (self.folder / "log").read_text()
        if "cannot keep code apart" in log:
            pytest.skip("this machine cannot keep code apart")
        raise AssertionError(log)

    def post(self, path: str, body: dict[str, Any], owner: str = "attacker") -> Any:
        headers = {"authorization": f"Bearer key-{owner}"}
        answer = httpx.post(f"{self.url}/v1{path}", json=body, headers=headers, timeout=LONG)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def get(self, path: str, owner: str = "attacker") -> httpx.Response:
        headers = {"authorization": f"Bearer key-{owner}"}
        return httpx.get(f"{self.url}/v1{path}", headers=headers, timeout=LONG)

    def delete(self, path: str) -> None:
        headers = {"authorization": "Bearer key-attacker"}
        answer = httpx.delete(f"{self.url}/v1{path}", headers=headers, timeout=LONG)
        assert answer.status_code == 200, answer.text

    def container(self, owner: str = "attacker") -> str:
        made: str = self.post("/containers", {"name": "c"}, owner)["id"]
        return made

    def say(self, said: str, tool: str, container: str, owner: str = "attacker") -> str:
        """What the call gives, all of it."""
        tools: dict[str, Any] = {
            "python": {"type": "code_interpreter", "container": container},
            "shell": {
                "type": "shell",
                "environment": {"type": "container_reference", "container_id": container},
            },
        }
        body = {
            "model": "m",
            "input": said,
            "tools": [tools[tool]],
            "include": ["code_interpreter_call.outputs"],
        }
        response = self.post("/responses", body, owner)
        assert response["status"] == "completed", response
        outputs = []
        for item in response["output"]:
            if item["type"] == "code_interpreter_call":
                outputs += [str(each.get("logs", each)) for each in item["outputs"] or []]
            elif item["type"] == "shell_call_output":
                outputs += [each["stdout"] + each["stderr"] for each in item["output"]]
        return "\n".join(outputs)

    def files(self, container: str) -> bytes:
        """All that has come out of a container."""
        whole = b""
        for file in self.get(f"/containers/{container}/files?limit=100").json()["data"]:
            whole += file["path"].encode()
            whole += self.get(f"/containers/{container}/files/{file['id']}/content").content
        return whole

    def connected(self) -> list[str]:
        """Who has connected to the host's own servers."""
        found = []
        for server in (self._listening, self._unix, self._abstract):
            server.settimeout(0)
            with suppress(BlockingIOError):
                found.append(str(server.accept()))
        return found

    def state(self) -> dict[str, Any]:
        """What must be the same afterwards."""
        settings = ("core_pattern", "modprobe", "hostname", "sysrq", "domainname")
        return {
            "settings": [_read(f"/proc/sys/kernel/{name}") for name in settings],
            "preload": os.path.exists("/etc/ld.so.preload"),
            "passwd": _read("/etc/passwd"),
            "secret": self.secret.read_text(),
            "config": self.config.read_text(),
            "canaries": [
                str(path)
                for folder in ("/", "/mnt", "/usr", "/etc", "/run", "/dev", "/dev/shm", "/tmp", "/opt")
                for path in Path(folder).glob("canary*")
            ],
            "server": self.process.poll(),
        }  # fmt: skip


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(tmp_path_factory.mktemp("escapes"), stack)


@pytest.fixture(scope="module")
def victim(host: Host) -> str:
    """Another client's container, which has a variable and a file."""
    made = host.container("victim")
    host.say("keep this", "python", made, "victim")
    return made


@pytest.fixture(scope="module")
def container(host: Host) -> str:
    """One container for all attempts that do not end it."""
    return host.container()


def test_there_are_forty_attempts_and_each_has_a_name() -> None:
    names = [attempt["name"] for attempt in ATTEMPTS]
    assert len(set(names)) == len(names) >= 40


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=each["name"], marks=[pytest.mark.slow] if each.get("slow") else [])
        for number, each in enumerate(ATTEMPTS)
    ],
)
def test_nothing_is_reached_by(host: Host, victim: str, container: str, number: int) -> None:
    attempt = ATTEMPTS[number]
    used = host.container() if attempt.get("ends") else container
    output = host.say(f"attempt {number:03d}", attempt["tool"], used)
    assert CANARY not in output
    assert "REACHED" not in output, [line for line in output.splitlines() if "REACHED" in line]
    if not attempt.get("ends"):
        assert DONE in output, f"the attempt did not run to its end: {output[-2000:]}"
    if not attempt.get("disturbs"):
        again = host.say("are you alive", "python", used)
        assert "alive 42" in again, f"after {output[-1000:]!r}"
        assert "FORGED" not in again
    assert CANARY.encode() not in host.files(used)
    if attempt.get("ends"):
        host.delete(f"/containers/{used}")
    assert httpx.get(f"{host.url}/health", timeout=LONG).status_code == 200


def test_afterwards_all_is_as_it_was(host: Host, victim: str, container: str) -> None:
    links = next(n for n, each in enumerate(ATTEMPTS) if each["name"].startswith("links in place"))
    host.say(f"attempt {links:03d}", "python", container)  # if that has not been tried yet
    assert host.state() == host.before
    assert host.connected() == []
    assert "True" in host.say("do you have it", "python", victim, "victim")
    assert host.get(f"/containers/{victim}").status_code == 404, "it is not the attacker's"
    own = host.get(f"/containers/{container}/files?limit=100").json()["data"]
    names = {file["path"].removeprefix("/mnt/data/") for file in own}
    assert "plain.txt" in names
    assert not {name for name in names if name.startswith(("link", "pipe", "hard"))}
    assert CANARY not in (host.folder / "log").read_text()
