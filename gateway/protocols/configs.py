"""What the configuration of a plugin may be besides a Struct."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable


@runtime_checkable
class CheckableConfig(Protocol):
    """A tool's configuration that can tell what is missing on this machine. Optional: `gateway doctor` asks those that have it."""

    def problems(self) -> Iterable[str]:
        """A sentence for each thing that is missing, with the key below the tool's table that names it (`servers.docs.command: …`).
        Called without opening anything; may look at files, but neither runs programs nor connects."""
        ...
