"""Probes of tool servers: whatever a server does, the answer comes, and others are not disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gateway.config import Config
from gateway.plugins.protocols import ServerTool, ToolDefinition, ToolServer
from gateway.tools.available import AvailableTools, BoundTool
from gateway.tools.probes import MAX_SERVERS, MAX_TOOLS, ToolProbes
from gateway.wire.inventory import ListedToolServer
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio
CONFIG = Config(models={}, tools={"m": {"servers": {"x": {"headers": {"x-key": "secret-key"}}}}})


def tool(name: str, description: str = "") -> ServerTool:
    return ServerTool(definition=ToolDefinition(name=name, description=description))


class Asked(ToolServer):
    """A server whose probe does what `does` is."""

    def __init__(self, label: str, does: object) -> None:
        self.label = label
        self.does = does
        self.probes = 0
        self.cancelled = 0
        self.go = asyncio.Event()

    async def probe(self) -> Sequence[ServerTool] | None:
        self.probes += 1
        match self.does:
            case Exception() as error:
                raise error
            case "hang" | "swallow" as does:
                while not self.go.is_set():
                    try:
                        await self.go.wait()
                    except asyncio.CancelledError:
                        self.cancelled += 1
                        if does == "hang":
                            raise
                return []
            case "wait":
                await self.go.wait()
                return [tool("late")]
            case tools:
                return tools  # type: ignore[return-value]


class Choice(ToolServer):
    label = request_type = "mcp"

    def __init__(self, servers: Sequence[ToolServer]) -> None:
        self.servers = servers

    def offered(self) -> Sequence[ToolServer]:
        return self.servers[:1]

    def configured(self) -> Sequence[ToolServer]:
        return self.servers


def tables(*servers: ToolServer) -> dict[str, AvailableTools]:
    return {"m": AvailableTools(choices={"mcp": Choice(servers)})}


async def probed(
    *servers: ToolServer, probes: ToolProbes | None = None
) -> dict[str, ListedToolServer]:
    answer = await (probes or ToolProbes(seconds=60, all_seconds=60)).probe(
        tables(*servers), CONFIG
    )
    return {each.label: each for each in answer.data}


async def test_what_servers_answer() -> None:
    found = await probed(
        Asked("there", [tool("add", "Adds")]),
        Asked("away", RuntimeError("refused with secret-key")),
        Asked("nothing", None),
        Asked("silent", ValueError()),
        Asked("wrong", 7),
    )
    assert (found["there"].state, found["there"].total) == ("reachable", 1)
    assert found["there"].seconds is not None
    assert (found["there"].offered, found["away"].offered) == (True, False)
    assert found["away"].error == "refused with [hidden]"
    assert found["nothing"].state == "no_probe"
    assert found["silent"].error == "ValueError"
    assert found["wrong"].state == "unreachable"


async def test_what_is_foreign_is_cut_and_has_no_secrets() -> None:
    many = [tool(f"secret-key {number} " + "n" * 500, "d" * 5000) for number in range(1000)]
    found = (await probed(Asked("large", many), Asked("wordy", ValueError("x" * 10_000))))["large"]
    assert (found.total, len(found.tools)) == (1000, MAX_TOOLS)
    assert all(each.name.startswith("[hidden] ") for each in found.tools)
    assert max(len(each.name) + len(each.description or "") for each in found.tools) <= 600


@pytest.mark.parametrize("does", ["hang", "swallow"])
async def test_one_that_hangs_does_not_keep_the_answer(does: str) -> None:
    """Nor does one that refuses to be cancelled; that one is not asked again until it has ended."""
    probes = ToolProbes(seconds=0.05)
    stuck, well = Asked("stuck", does), Asked("well", [])
    for _ in range(2):
        found = await probed(stuck, well, probes=probes)
        assert found["stuck"].state == "unreachable"
        assert found["well"].state in ("reachable", "unreachable")  # the machine may be slow
        await wait_until_async(lambda: stuck.cancelled > 0)
    assert stuck.probes == (2 if does == "hang" else 1)
    stuck.go.set()


async def test_nothing_is_asked_without_being_asked_for() -> None:
    server = Asked("there", [tool("add")])
    probes = ToolProbes(seconds=60, all_seconds=60)
    before = probes.listed(tables(server)).data[0]
    assert (before.state, before.total, server.probes) == ("unknown", None, 0)
    await probed(server, probes=probes)
    assert probes.listed(tables(server)).data[0].state == "reachable"
    # What was found is of that server, not of one that a later configuration has under the same label.
    assert probes.listed(tables(Asked("there", []))).data[0].state == "unknown"


async def test_requests_that_wait_share_a_probe() -> None:
    server = Asked("late", "wait")
    probes = ToolProbes(seconds=60, all_seconds=60)
    first = asyncio.create_task(probed(server, probes=probes))
    await wait_until_async(lambda: server.probes == 1)
    more = [asyncio.create_task(probed(server, probes=probes)) for _ in range(20)]
    await asyncio.sleep(0)
    server.go.set()
    answers = await asyncio.gather(first, *more)
    assert all(each["late"].state == "reachable" for each in answers)
    assert server.probes == 2


async def test_a_request_that_goes_away_ends_its_probe() -> None:
    server = Asked("stuck", "hang")
    task = asyncio.create_task(probed(server))
    await wait_until_async(lambda: server.probes == 1)
    task.cancel()
    await asyncio.wait({task})
    await wait_until_async(lambda: server.cancelled == 1)


async def test_a_table_of_tools_and_too_many_servers() -> None:
    class Dice(ToolServer):
        label = "dice"

    entries = [BoundTool(Dice(), tool("roll"))]
    own = {
        "dice": AvailableTools(always=entries),
        "none": AvailableTools(),
        "shell": AvailableTools(by_type={"shell": entries}),
        **tables(*(Asked(f"s{number}", []) for number in range(200))),
    }
    answer = await ToolProbes(seconds=60, all_seconds=60).probe(own, CONFIG)
    assert (answer.total, len(answer.data)) == (203, MAX_SERVERS)
    dice, none, shell, first, *_ = answer.data
    assert (dice.state, dice.offered, [each.name for each in dice.tools]) == ("no_probe", True, ["roll"])  # fmt: skip
    assert (none.label, none.total) == ("none", 0)
    assert (shell.types, shell.offered) == (["shell"], False)
    assert first.state == "reachable"
