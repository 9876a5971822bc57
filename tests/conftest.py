"""Fixtures that every test may use."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests (`pytestmark = pytest.mark.anyio`) run on asyncio."""
    return "asyncio"
