"""The plugin proves itself by the kit that comes with Litegate."""

from collections.abc import AsyncIterator

import pytest

import gateway_dice
from gateway.protocols import NoConfig, ToolServer
from gateway.testing import ToolServerContract
from gateway.tools.functions import functions


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
