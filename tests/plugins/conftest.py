"""What the tests of several plugins look at."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest


class Sandboxes:
    """The sandboxes of all gateways of this process."""

    def count(self) -> int:
        """How many have not ended."""
        return sum(self._is_keeper(entry) for entry in Path("/proc").iterdir())

    def none_left(self) -> None:
        """All end, soon after their responses."""
        for _ in range(100):
            if self.count() == 0:
                return
            time.sleep(0.05)
        raise AssertionError(f"{self.count()} processes of sandboxes are left")

    @staticmethod
    def _is_keeper(entry: Path) -> bool:
        if not entry.name.isdigit():
            return False
        try:
            command = (entry / "cmdline").read_bytes()
            status = (entry / "status").read_text()
        except OSError:
            return False
        own = f"PPid:\t{os.getpid()}\n" in status
        return b"jail.keeper" in command and own and "State:\tZ" not in status


@pytest.fixture(scope="session")
def sandboxes() -> Sandboxes:
    return Sandboxes()
