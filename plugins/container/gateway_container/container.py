"""One container as a server process uses it, and one call's work in it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from gateway.wire.ids import new_id
from gateway_container.jail.spec import Limits
from gateway_container.kept.objects import ContainerFile
from gateway_container.kept.records import Wish
from gateway_container.mirror import Mirror
from gateway_container.sandbox.process import Sandbox
from gateway_container.turn import Turn


class Container:
    """Its sandbox is started when it is needed, and anew where it has died."""

    def __init__(
        self,
        owner: str,
        limits: Limits,
        locks: Path,
        *,
        container_id: str | None = None,
        wish: Wish | None = None,
    ) -> None:
        self.id = container_id or new_id("cntr_")
        self.owner = owner
        """The name of an API key, or empty."""
        self.limits = limits
        self.wish = wish
        """What it shall be; None where it is kept already."""
        self.making = asyncio.Lock()
        self.started = self.last_used = time.monotonic()
        self.users = 0
        """Responses that use it now."""
        self.cells = asyncio.Lock()
        """Held by the cell that runs."""
        self.sandbox: Sandbox | None = None
        self.mirror: Mirror | None = None
        """Of the sandbox's files."""
        self.begun_anew = False
        """Whether another sandbox was here before this one, and the model was not told so yet."""
        self.starting = asyncio.Lock()
        self.mirroring = asyncio.Lock()
        self.turn = Turn(locks / self.id)


class Work:
    """One call's use of a container's sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.files: list[ContainerFile] = []
        """What the call has written, known when its work is done."""
        self.notes: list[str] = []
        """What the model should know of the container, complete when the work is done."""
