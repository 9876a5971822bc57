"""The policy `redact`, held against the kit for policies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.plugins.protocols import Policy
from gateway_redact import RedactConfig, open_redact
from gateway_testing import PolicyContract
from gateway_testing.closing_contract import Reopen

CONFIG = RedactConfig(patterns=[r"\d{4}", r"secret-\w+"])


class TestRedact(PolicyContract):
    words = ("1234", "secret-word", "secret-")

    @pytest.fixture
    def reopen(self) -> Reopen:
        return lambda: open_redact(CONFIG)

    @pytest.fixture
    async def policy(self) -> AsyncIterator[Policy]:
        async with open_redact(CONFIG) as policy:
            yield policy
