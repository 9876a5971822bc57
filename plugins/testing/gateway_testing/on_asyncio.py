"""Runs the asynchronous tests of a contract with asyncio."""

from __future__ import annotations

import pytest


class OnAsyncio:
    """Base class of the contracts with asynchronous tests and fixtures, of any scope up to module scope."""

    @pytest.fixture(scope="module")
    @classmethod
    def anyio_backend(cls) -> str:
        return "asyncio"
