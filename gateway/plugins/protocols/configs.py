"""Optional methods of a plugin's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable


@runtime_checkable
class CheckableConfig(Protocol):
    """A tool's configuration that can report what is missing on this machine. Optional: `gateway doctor` calls it."""

    def problems(self) -> Iterable[str]:
        """Yield a sentence for each missing thing, beginning with the key below the tool's table that names it
        (`servers.docs.command: …`). Called without opening anything. May look at files, but must neither run programs
        nor connect."""
        ...
