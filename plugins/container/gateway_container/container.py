"""The state of one container in a server process, and of one call's work in it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from gateway.sdk.wire import new_id
from gateway_container.container_lock import ContainerLock
from gateway_container.jail.spec import SandboxLimits
from gateway_container.library.objects import ContainerFile
from gateway_container.library.records import ContainerSettings
from gateway_container.mirror import Mirror
from gateway_container.sandbox.process import Sandbox


class Container:
    """A container whose sandbox is started on demand, and restarted after it died."""

    def __init__(
        self,
        owner: str,
        limits: SandboxLimits,
        locks: Path,
        *,
        container_id: str | None = None,
        settings: ContainerSettings | None = None,
    ) -> None:
        self.id = container_id or new_id("cntr_")
        self.owner = owner
        """Name of an API key, or empty."""
        self.limits = limits
        self.settings = settings
        """Settings of the container to create; None once it is stored."""
        self.making = asyncio.Lock()
        self.started = self.last_used = time.monotonic()
        self.users = 0
        """Number of responses that use it now."""
        self.cells = asyncio.Lock()
        """Held while a cell runs."""
        self.sandbox: Sandbox | None = None
        self.reserved: int | None = None
        """The reservation of memory for its sandbox."""
        self.has_place = False
        """Whether it has one of the places of containers that are in use."""
        self.mirror: Mirror | None = None
        """Synchronizes the sandbox's files with the stored ones."""
        self.begun_anew = False
        """Whether the sandbox was restarted and the model has not been told yet."""
        self.starting = asyncio.Lock()
        self.mirroring = asyncio.Lock()
        self.lock = ContainerLock(locks / self.id)


class SandboxUse:
    """One call's use of a container's sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.files: list[ContainerFile] = []
        """Files that the call has written; set when the work is done."""
        self.notes: list[str] = []
        """Notes for the model about the container; complete when the work is done."""
