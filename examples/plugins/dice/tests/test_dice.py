"""Runs Litegate's contract tests on the plugin."""

from collections.abc import AsyncIterator

import pytest

import gateway_dice
from gateway.sdk import NoConfig, ToolServer
from gateway.sdk.tools import functions
from gateway_testing import ToolServerContract


class TestDice(ToolServerContract):
    good_call = ("roll_dice", {"sides": 6, "count": 3})
    bad_call = ("roll_dice", {"sides": "many"})

    @pytest.fixture
    async def tool_server(self) -> AsyncIterator[ToolServer]:
        async with functions("dice", gateway_dice.roll_dice)(NoConfig()) as server:
            yield server


def test_the_sum_is_of_what_was_thrown() -> None:
    result = gateway_dice.roll_dice(sides=4, count=20)
    assert sum(result["dice"]) == result["sum"]
    assert set(result["dice"]) <= {1, 2, 3, 4}
