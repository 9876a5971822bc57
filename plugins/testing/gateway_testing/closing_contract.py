"""The part of the kits for opened plugins that tests closing: no tasks or threads may be left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, TypeAlias

import pytest

from gateway_doctor.checks.loop_watch import Leftovers

Reopen: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


@pytest.mark.anyio
class ClosingContract:
    """A part of other kits. To run its test, provide the fixture `reopen`."""

    close_seconds: ClassVar[float] = 60.0
    """Maximum time in seconds that tasks and threads may take to end after closing."""

    @pytest.fixture
    def reopen(self) -> Reopen | None:
        """A function that opens another instance as the gateway does: it returns an async context manager. If None,
        closing is not tested."""
        return None

    async def use_once(self, opened: Any) -> None:
        """Use the opened instance in ways that may start background work. Kits and their subclasses define this."""

    async def test_nothing_runs_after_it_is_closed(self, reopen: Reopen | None) -> None:
        """No tasks or threads are left."""
        if reopen is None:
            pytest.skip("give the fixture `reopen` to test closing")
        async with (
            reopen() as opened
        ):  # things that a library makes once for each process do not count
            await self.use_once(opened)
        before = Leftovers()
        async with reopen() as opened:
            await self.use_once(opened)
        left = await before.settled(0, self.close_seconds)
        assert not left, f"after closing, there is still: {', '.join(left)}"
