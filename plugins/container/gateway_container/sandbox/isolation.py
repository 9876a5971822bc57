"""Kinds of isolation. One is chosen at start-up; a weaker one is used only if configured."""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from gateway import sdk
from gateway.sdk import ConfigurationError
from gateway_container.config import MIB, ContainersConfig
from gateway_container.jail.cgroup import bounded_by
from gateway_container.jail.seccomp import is_known
from gateway_container.jail.spec import SandboxLimits

logger = logging.getLogger("gateway.container")

FOLDER = "/mnt/data"
"""The working folder in a sandbox, as in OpenAI's containers."""

_INSIDE = resources.files("gateway_container") / "inside"
_PACKAGE = Path(__file__).parents[1]
_PROGRAMS = ("__init__.py", "agent.py", "cells.py", "files.py", "interpreter.py", "processes.py")
_SCRATCH = "/tmp"  # noqa: S108 - the sandbox's own
_LAID = f"{_SCRATCH}/.agent"
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts",
    "/etc/ssl/certs", "/etc/localtime",
)  # fmt: skip
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "MPLBACKEND": "Agg",
}


_AGENT = ("-I", "-S", "-X", "utf8")
_CELLS = ("-I", "-B", "-X", "utf8")
"""Options of the cell interpreter. It sees the packages that are installed with it."""


class Launch(Struct, frozen=True):
    """A program to start, and the input it reads first."""

    command: list[str]
    preamble: bytes = b""
    end: list[str] = []
    """A command that ends the sandbox, if ending the program may not suffice."""
    folder: str | None = None
    """A folder to remove when the sandbox has ended."""


class Isolation(Protocol):
    """A way to isolate sandboxes."""

    @property
    def description(self) -> str:
        """A description that fits into a sentence."""
        ...

    def memory(self, limits: SandboxLimits) -> int:
        """Maximum memory in bytes that a sandbox with these limits may take, including its files."""
        ...

    def launch(self, name: str, limits: SandboxLimits) -> Launch:
        """The program that runs the agent in a new sandbox. `name` must be unique on this machine."""
        ...


def programs() -> dict[str, str]:
    """Source texts of the programs that run inside, by module name in the package `inside`."""
    return {name: (_INSIDE / name).read_text(encoding="utf-8") for name in _PROGRAMS}


def _start_agent(folder: str, python: str, *, alone: bool) -> str:
    """The line of Python that runs the agent from the package in `folder`. `alone`: in a PID namespace of its own."""
    interpreter = [python, *_CELLS, f"{folder}/inside/interpreter.py"]
    return (
        f"import sys; sys.path.insert(0, {folder!r}); sys.dont_write_bytecode = True; "
        # Later imports of the agent must not come from a folder that sandboxed code can write to.
        f"from inside.agent import main; sys.path.remove({folder!r}); main({interpreter!r}, alone={alone})"
    )


class _Interpreter(Struct, frozen=True):
    """A Python interpreter in a sandbox, and the folders that it needs."""

    path: str
    shown: list[str]
    hidden: list[str]


class Jail:
    """The keeper of `gateway_container.jail`: namespaces, or resource limits only if configured."""

    def __init__(self, config: ContainersConfig, *, namespaces: bool, groups: bool = True) -> None:
        """`groups`: control groups are used, if they can be made."""
        self._config = config
        self._namespaces = namespaces
        self._python = _interpreter(config.python)
        self._cgroup = config.cgroup if groups else ""
        self.bounds = bounded_by(self._cgroup) if namespaces else []
        """The controllers of its control groups."""

    @property
    def python(self) -> str:
        """The interpreter in the sandbox."""
        return self._python.path

    @property
    def description(self) -> str:
        if not self._namespaces:
            return "NOTHING but resource limits (unsafe = true): code can do what the gateway's user can"
        calls = "seccomp" if is_known() else f"no seccomp (unknown on {platform.machine()})"
        return f"namespaces (user, mount, pid, net, ipc, uts, cgroup), {calls}, resource limits"

    def memory(self, limits: SandboxLimits) -> int:
        return limits.memory if "memory" in self.bounds else limits.memory + limits.disk

    def launch(self, name: str, limits: SandboxLimits) -> Launch:
        python = self._python
        folder = None if self._namespaces else tempfile.mkdtemp(prefix=f"{name}-")
        inside = folder or FOLDER
        laid = f"{folder}/.agent" if folder else "/run"
        spec = {
            "namespaces": self._namespaces,
            "parent": os.getpid(),
            "command": [
                python.path,
                *_AGENT,
                "-c",
                _start_agent(laid, python.path, alone=self._namespaces),
            ],
            "environment": {
                **_ENVIRONMENT,
                "HOME": inside,
                "MPLCONFIGDIR": f"{folder or _SCRATCH}/.matplotlib",
            },
            "files": {f"{laid}/inside/{name}": text for name, text in programs().items()},
            "shown": _outermost([*_SYSTEM, *python.shown, *_with_targets(self._config.readable)]),
            "hidden": python.hidden,
            "folder": inside,
            "cgroup": self._cgroup,
            "bounds": self.bounds,
            "limits": msgspec.to_builtins(limits),
        }
        start = (
            f"import sys; sys.path.insert(0, {str(_PACKAGE)!r}); "
            "from jail.keeper import main; sys.exit(main())"
        )
        return Launch(
            [os.path.realpath(sys.executable), "-I", "-S", "-X", "utf8", "-c", start],
            json.dumps(spec).encode() + b"\n",
            folder=folder,
        )


class ContainerEngine:
    """A container engine that runs each sandbox: `docker run`, `podman run`."""

    def __init__(self, config: ContainersConfig) -> None:
        assert config.engine is not None
        assert config.image is not None
        self._engine, self._image = config.engine, config.image

    @property
    def description(self) -> str:
        return f"the container engine {self._engine}, image {self._image}"

    def memory(self, limits: SandboxLimits) -> int:
        return limits.memory

    def launch(self, name: str, limits: SandboxLimits) -> Launch:
        loader = "\n".join(
            (
                "import os",
                f"os.makedirs({_LAID!r} + '/inside')",
                f"for name, text in {programs()!r}.items():",
                f"    open({_LAID!r} + '/inside/' + name, 'w').write(text)",
                _start_agent(_LAID, "python3", alone=True),
            )
        )
        writable = f"rw,exec,nosuid,nodev,size={limits.disk},mode=1777"
        command = [
            self._engine, "run", "--rm", "--interactive", "--name", name,
            # Does not pull images during a request, and bypasses the image's entry point.
            "--pull", "never", "--entrypoint", "python3", "--no-healthcheck",
            # The agent's output must not go to the engine's logs, which have no size limit.
            "--log-driver", "none",
            "--network", "none", "--ipc", "private", "--cgroupns", "private", "--read-only", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--user", "1000:1000",
            "--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--oom-score-adj", "1000",
            # One more for the first process, which reaps orphans.
            "--pids-limit", str(limits.processes + 1),
            "--ulimit", f"nofile={limits.open_files}", "--ulimit", f"cpu={limits.cpu_seconds}",
            "--ulimit", f"fsize={limits.disk}", "--ulimit", "core=0", "--ulimit", "memlock=65536",
            "--tmpfs", f"{FOLDER}:{writable}", "--tmpfs", f"{_SCRATCH}:{writable}",
            "--shm-size", str(min(limits.disk, 64 * MIB)),
            "--workdir", FOLDER, "--env", f"HOME={FOLDER}",
            *(each for pair in _ENVIRONMENT.items() for each in ("--env", "=".join(pair))),
            self._image, *_AGENT, "-c", loader,
        ]  # fmt: skip
        return Launch(command, end=[self._engine, "kill", name])


def _interpreter(path: str | None) -> _Interpreter:
    """The interpreter at `path`, or the base interpreter of this environment, with the gateway's packages hidden."""
    if path is not None:
        return _Interpreter(path, _prefixes(path), [])
    path = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not os.path.exists(path):
        path = os.path.realpath(sys.executable)
    own = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *_import_folders()}
    return _Interpreter(path, [sys.base_prefix, os.path.realpath(path)], sorted(own))


def _prefixes(path: str) -> list[str]:
    """The folders of an interpreter: its own, and that of the base interpreter of its virtual environment."""
    if not os.access(path, os.X_OK):
        raise ConfigurationError(
            f"`python` of the sandboxes: {path!r} is not a program that can be run."
        )
    prefixes = [os.path.dirname(os.path.dirname(path))]
    link = path
    while os.path.islink(link):
        link = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
        prefixes.append(os.path.dirname(os.path.dirname(link)))
    return list(dict.fromkeys(prefixes))


def _import_folders() -> set[str]:
    """The folders from which the gateway and its plugins are imported."""
    return {str(Path(sdk.__file__).absolute().parents[2]), str(_PACKAGE.parent)}


def _with_targets(paths: list[str]) -> list[str]:
    """`paths` and the targets of those that are links."""
    return [each for path in paths for each in (os.path.normpath(path), os.path.realpath(path))]


def _outermost(paths: list[str]) -> list[str]:
    """`paths` without those that lie within another."""
    return [
        path
        for path in dict.fromkeys(paths)
        if not any(path.startswith(other.rstrip("/") + "/") for other in paths)
    ]


def environment() -> Mapping[str, str]:
    """The environment variables that the launching program inherits: only those needed to find engines."""
    kept = ("PATH", "HOME", "DOCKER_HOST", "CONTAINER_HOST", "XDG_RUNTIME_DIR")
    return {name: os.environ[name] for name in kept if name in os.environ}
