"""A tool plugin: the server throws dice.

Install it (`pip install -e .`), select it with a table `[tools.dice]` in `gateway.toml`, and every model can call it.
"""

import random
from typing import Annotated

from msgspec import Meta

from gateway.sdk import OpenTool, Register, hookimpl
from gateway.sdk.tools import functions

Sides = Annotated[int, Meta(ge=2, le=1000, description="How many sides each die has")]
Count = Annotated[int, Meta(ge=1, le=100, description="How many dice are thrown")]


def roll_dice(sides: Sides = 6, count: Count = 1) -> dict[str, object]:
    """Throw dice. Returns the value of each and their sum."""
    thrown = [random.randint(1, sides) for _ in range(count)]
    return {"dice": thrown, "sum": sum(thrown)}


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register("dice", functions("dice", roll_dice), summary="Throws dice.")
