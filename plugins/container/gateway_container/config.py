"""`[resources.containers]` in `gateway.toml`, and what the tools that use containers have of their own."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Minutes: TypeAlias = Annotated[int, Meta(ge=1)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1)]
MIB = 1_048_576


class ContainersConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[resources.containers]`: how code is kept apart, what it may use, and what is kept of it."""

    path: str = ""
    """The folder that holds the containers' files, which the server processes of one machine may share. Empty: a temporary
    one of this process, gone with it."""
    isolation: Literal["auto", "namespaces", "engine"] = "auto"
    """`namespaces`: of this kernel; `engine`: a container engine; `auto`: namespaces, else the engine that is configured."""
    unsafe: bool = False
    """Whether code may run as the gateway's own user, who can read and end what the gateway can, where nothing else
    is available."""
    engine: str | None = None
    """The command of a container engine: `docker`, `podman`."""
    image: str | None = None
    """The image that the engine runs; it needs `python3` (3.9 or newer)."""
    python: str | None = None
    """The interpreter in the sandbox, as a path; None: the one that the gateway's environment is made from."""
    readable: list[str] = []
    """Further folders of this machine that sandboxed code may read."""
    cgroup: str | None = None
    """A folder of cgroup version 2 that the gateway may make groups in; None: as version 1 allows."""
    max_memory_bytes: Annotated[int, Meta(ge=64 * MIB)] = 1024 * MIB
    """Memory of one container; its files are in memory too. A request may ask for less."""
    max_disk_bytes: Annotated[int, Meta(ge=MIB)] = 256 * MIB
    """All that one container may write, and the size of a file."""
    max_processes: Annotated[int, Meta(ge=8)] = 64
    """Processes and threads of one container."""
    max_open_files: Annotated[int, Meta(ge=32)] = 256
    """Of each process."""
    max_cpu_seconds: Annotated[int, Meta(ge=1)] = 300
    """CPU time of each process."""
    start_timeout: Seconds = 20.0
    """Seconds for a container to start."""
    max_running: Annotated[int, Meta(ge=1)] = 16
    """Containers whose processes run at one time, in each server process; those that nobody uses make room."""
    keep_running: Annotated[float, Meta(ge=0)] = 300.0
    """Seconds without use for which a container's processes and variables are kept; 0: they end with the response."""
    max_lifetime: Seconds = 3600.0
    """Seconds after which kept processes end, used or not."""
    expiry_minutes: Minutes = 20
    """Minutes without use after which a container is gone with its files, where its request says no number."""
    max_expiry_minutes: Minutes = 1440
    """What a request may ask for at most."""
    max_containers: Annotated[int, Meta(ge=1)] = 1000
    """Containers of one API key; one that a response has made for itself makes room for the next."""
    max_files: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """Files of one container."""
    max_total_bytes: Bytes = 10_737_418_240
    """Bytes of all containers' files of one API key."""

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
    """What a tool that works in containers has of its own."""

    time_limit: Seconds = 60.0
    """Seconds for one call."""
    max_output_bytes: Annotated[int, Meta(ge=256, le=4 * MIB)] = 65_536
    """What is kept of one call's output; of what is more, the middle is cut out."""


class ContainerConfig(CallsConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.container]`."""

    offer: bool = False
    """Whether every request to the Responses API has the tool `container.exec` without asking."""
