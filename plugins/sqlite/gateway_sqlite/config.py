"""Configuration of the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.sdk import ConfigurationError
from gateway.sdk.configuration import Positive, Seconds


class SqliteConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[stores.sqlite]`."""

    path: Annotated[str, Meta(min_length=1)] | None = None
    """The file; `~` is the home folder. Gateways of one machine with the same file share what they store. Default:
    `litegate/store.sqlite` in `$XDG_STATE_HOME`, or in `~/.local/state`."""
    ttl: Seconds = 30 * 86_400.0
    """Seconds without use after which an entry is removed."""
    max_responses: Positive = 1_000_000
    """Maximum number of responses. If this or one of the next three bounds is exceeded, the least recently used entries
    of the owner with the highest usage are removed."""
    max_conversations: Positive = 1_000_000
    """Maximum number of conversations."""
    max_completions: Positive = 1_000_000
    """Maximum number of stored chat completions."""
    max_bytes: Positive = 4 << 30
    """Maximum size of all of these together, events included, in bytes. The file is larger by about a third."""
    synchronous: Literal["full", "normal"] = "full"
    """`full`: what is acknowledged survives a loss of power. `normal`: it survives the end of the process only, and
    writing does not wait for the disk."""
    check: Literal["quick", "full", "off"] = "quick"
    """How the file is checked for damage at the start: `quick` reads it once; `full` also compares the indexes."""
    timeout: Seconds = 10.0
    """Seconds to wait for another process that writes, or for a place in the queue of writes."""
    readers: Annotated[int, Meta(ge=1, le=64)] = 4
    """Number of threads that read."""

    def file(self) -> Path:
        """The database file."""
        if self.path is not None:
            return _expanded(self.path)
        state = os.environ.get("XDG_STATE_HOME", "")
        # The specification of the variable: a relative path is ignored.
        folder = Path(state) if Path(state).is_absolute() else _expanded("~/.local/state")
        return folder / "litegate" / "store.sqlite"


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigurationError(
            "The store 'sqlite' finds no home folder: set path under [stores.sqlite], or store = \"memory\" under [server]."
        ) from None
