"""`[resources.containers]` in `gateway.toml`, and the settings of the tools that use containers."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.sdk.configuration import Positive, Seconds

MIB = 1_048_576


class ContainersConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[resources.containers]`: isolation, resource limits and retention of containers."""

    path: str = ""
    """The folder that stores the containers' files. Server processes of one machine may share it. Empty: a temporary
    folder of this process, deleted when it ends."""
    isolation: Literal["auto", "namespaces", "engine"] = "auto"
    """`namespaces`: Linux namespaces; `engine`: a container engine; `auto`: namespaces if available, else the
    configured engine."""
    unsafe: bool = False
    """Whether code may run as the gateway's own user if no isolation is available. Such code can read and kill
    whatever the gateway can."""
    engine: str | None = None
    """The command of a container engine: `docker` or `podman`."""
    image: str | None = None
    """The image that the engine runs. It needs `python3` (3.9 or newer) and must be present: the gateway does not
    pull images."""
    python: str | None = None
    """Path of the interpreter in the sandbox. None: the base interpreter of the gateway's virtual environment."""
    readable: list[str] = []
    """Additional folders of this machine that sandboxed code may read."""
    cgroup: str | None = None
    """A cgroup version 2 folder in which the gateway may create groups. None: cgroup version 1 is used if permitted.
    """
    max_memory_bytes: Annotated[int, Meta(ge=64 * MIB)] = 1024 * MIB
    """Memory of one container in bytes, including its files. A request may ask for less."""
    max_total_memory_bytes: Annotated[int, Meta(ge=64 * MIB)] | None = None
    """Memory of all running containers in bytes, over all server processes. None: half of the memory of the machine,
    or of the gateway's own cgroup."""
    max_disk_bytes: Annotated[int, Meta(ge=MIB)] = 256 * MIB
    """Maximum size in bytes of everything that one container writes, and of one file."""
    max_processes: Annotated[int, Meta(ge=8)] = 64
    """Maximum number of processes and threads per container. If those that earlier calls have left running reach it, so
    that no call can be run, they are ended."""
    max_open_files: Annotated[int, Meta(ge=32)] = 256
    """Maximum number of open files per process."""
    max_cpu_seconds: Positive = 300
    """CPU time per process, in seconds."""
    start_timeout: Seconds = 20.0
    """Seconds to wait for a container to start."""
    max_running: Positive = 16
    """Maximum number of running containers per server process; idle ones are stopped to make room."""
    max_waiting: Annotated[int, Meta(ge=0)] = 32
    """Maximum number of calls per API key that wait for a container."""
    max_wait: Seconds = 30.0
    """Seconds that a call waits for a container if all are in use, or as many as one API key may use."""
    keep_running: Annotated[float, Meta(ge=0)] = 300.0
    """Seconds without use for which a container's processes and variables are kept. 0: they end with the response."""
    max_lifetime: Seconds = 3600.0
    """Seconds after which kept processes end, even if they are in use."""
    expiry_minutes: Positive = 20
    """Minutes without use after which a container and its files are deleted, if the request sets no limit."""
    max_expiry_minutes: Positive = 1440
    """Maximum number of minutes that a request may ask for."""
    max_containers: Positive = 1000
    """Maximum number of containers per API key. Containers that responses created automatically are deleted to make
    room."""
    max_files: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """Maximum number of files per container."""
    max_total_bytes: Positive = 10_737_418_240
    """Maximum size of all containers' files per API key, in bytes."""

    def __post_init__(self) -> None:
        if self.isolation == "engine" and not self.engine:
            raise ValueError('`isolation = "engine"` needs an `engine`, such as "docker"')
        if bool(self.engine) != bool(self.image):
            raise ValueError("`engine` and `image` go together")
        if self.python is not None and not self.python.startswith("/"):
            raise ValueError("`python` is an absolute path")
        if not all(path.startswith("/") for path in self.readable):
            raise ValueError("`readable` has absolute paths")
        if self.expiry_minutes > self.max_expiry_minutes:
            raise ValueError("`expiry_minutes` is at most `max_expiry_minutes`")


class CallsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a tool that works in containers."""

    time_limit: Seconds = 60.0
    """Seconds for one call."""
    max_output_bytes: Annotated[int, Meta(ge=256, le=4 * MIB)] = 65_536
    """Maximum output of one call in bytes; the middle of longer output is cut out."""


class ContainerConfig(CallsConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.container]`."""

    offer: bool = False
    """Whether the tool `container.exec` is offered in every request to the Responses API."""
