"""CPU per request of this version and of another one: `python -m benchmarks.compare CHECKOUT [--pin] [--only NAME] [--rounds N]`.

`CHECKOUT` is a folder with the other version, as `git worktree add --detach` makes one; it runs with the same Python and the same
installed libraries. The floor and both versions are measured in turn, in many short rounds, with 16 connections. The minima are
shown, and the ratio of the first quartiles: if that is another one, the machine was too busy.

With `--pin`, for which it must be root, the servers have a core of their own and a real-time priority, and the load another core:
other work on the machine does not run on them while a round lasts, which is a tenth of a second. Without it, ratios are good to
about a tenth beside other work, with it to one or two hundredths.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

import msgspec
import uvloop

from benchmarks.calls import CASES, Case
from benchmarks.load import Client, http_request
from benchmarks.run import ROOT, Server, serving

CONNECTIONS = 16
REQUESTS = 20
"""For each connection in one round."""
WARM_UP = 60


async def measure(server: Server, case: Case, requests: int) -> float:
    """The CPU time of one request, in microseconds."""
    loop = asyncio.get_running_loop()
    sent = http_request(server.port, case.path, {"model": f"{case.model}-flat", **case.body})
    stream = case.body["stream"]
    before = server.cpu_seconds()
    made = await asyncio.gather(
        *(
            loop.create_connection(
                lambda: Client(sent, stream=stream, requests=requests), "127.0.0.1", server.port
            )
            for _ in range(CONNECTIONS)
        )
    )
    await asyncio.gather(*(client.done for _, client in made))
    for transport, _ in made:
        transport.close()
    return (server.cpu_seconds() - before) / (CONNECTIONS * requests) * 1e6


def pin(task: int, core: int) -> None:
    """Let a thread have `core`, before all ordinary work."""
    os.sched_setaffinity(task, {core})
    os.sched_setscheduler(task, os.SCHED_FIFO, os.sched_param(1))


def pin_server(server: Server) -> None:
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        pin(int(task.name), 0)


class Row(msgspec.Struct, frozen=True):
    """The rounds of one case, in microseconds."""

    floor: list[float]
    """Empty if it does not run the case."""
    other: list[float]
    own: list[float]

    def show(self, name: str) -> str:
        """As a line of a table in Markdown."""
        floor, other, own = min(self.floor, default=None), min(self.other), min(self.own)
        at = len(self.own) // 4
        quarter = sorted(self.own)[at] / sorted(self.other)[at]
        floors = ["", ""] if floor is None else [f"{floor:.0f}", f"{own / floor:.2f}"]
        columns = (
            name,
            floors[0],
            f"{other:.0f}",
            f"{own:.0f}",
            f"{own / other:.3f}",
            f"{quarter:.3f}",
            floors[1],
        )
        return f"| {' | '.join(columns)} |"


async def compare(servers: list[Server], cases: list[Case], rounds: int) -> dict[str, Row]:
    """Measure the floor, the other version and this one."""
    floor, other, own = servers
    rows = {case.name: Row([], [], []) for case in cases}
    for case in cases:
        for server in (other, own):
            await measure(server, case, WARM_UP)
    for _ in range(rounds):
        for case in cases:
            row = rows[case.name]
            if "items" not in case.name and case.path == "/v1/responses":
                row.floor.append(await measure(floor, case, REQUESTS))
            row.other.append(await measure(other, case, REQUESTS))
            row.own.append(await measure(own, case, REQUESTS))
    return rows


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of the other version")
    parser.add_argument("--pin", action="store_true", help="a core and real-time priority")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only in case.name]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving(kind, root))
            for kind, root in (("floor", ROOT), ("gateway", arguments.checkout), ("gateway", ROOT))
        ]
        if arguments.pin:
            for server in servers:
                pin_server(server)
            pin(0, (os.cpu_count() or 1) - 1)
        rows = uvloop.run(compare(servers, cases, arguments.rounds))
    print("| case | floor, µs | other | own | own ÷ other | quartile | × floor |")
    print("|---" * 7 + "|")
    print(*(row.show(name) for name, row in rows.items()), sep="\n")


if __name__ == "__main__":
    main()
