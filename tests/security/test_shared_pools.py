"""Whatever owners share has shares: processes and caches by one mechanism, and every other pool is listed with its reason."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult, Tool

from gateway.base.process_pool import ProcessPool
from gateway.base.shares import Shares
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import Principal
from gateway.storage.event_batches import BatchEntry, EventBatchWriter
from gateway.wire.tools import McpTool
from gateway_mcp.config import RemoteServersConfig
from gateway_mcp.guard import RemoteGuard
from gateway_mcp.links import ClosingConnections
from gateway_mcp.messages import OUTPUT_SCHEMA
from gateway_mcp.output_check import OutputCheck
from gateway_mcp.remote import KEPT_LISTS, RemoteServers

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]

_ONE_REQUEST = "of one request"
_NO_OWNER = "the gateway's own work, or of one owner"
_LIMITED_BEFORE = "what comes here has had its turn in the queue of the model"
KNOWN = {
    ("gateway/media/concurrently.py", "Semaphore"): _ONE_REQUEST,
    ("gateway/tools/calls.py", "Semaphore"): _ONE_REQUEST,
    ("gateway/media/shares.py", "Semaphore"): "one for each owner",
    ("gateway/tools/probes.py", "Semaphore"): _NO_OWNER,
    ("gateway/storage/files/database.py", "ThreadPoolExecutor"): _NO_OWNER,
    ("gateway/process/engine_host.py", "Semaphore"): "of server processes, not of requests",
    ("backends/llamacpp/gateway_llamacpp/pooled.py", "ThreadPoolExecutor"): _LIMITED_BEFORE,
    ("backends/remote/gateway_remote/connecting.py", "Pool"): "of engines",
    ("plugins/testing/gateway_testing/renderer_contract.py", "ThreadPoolExecutor"): "a test",
    ("plugins/testing/gateway_testing/api_contract.py", "ThreadPoolExecutor"): "a test",
}
"""Pools that are not `Shares`, and why they need not be."""
POOLS = {
    "Semaphore", "BoundedSemaphore", "ThreadPoolExecutor", "ProcessPoolExecutor", "Pool", "CapacityLimiter",
}  # fmt: skip


def _pools(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            function = node.func
            name = getattr(function, "attr", None) or getattr(function, "id", None)
            if name in POOLS:
                yield str(path.relative_to(ROOT)), str(name)


def test_each_pool_of_the_gateway_and_its_plugins_is_shared_or_says_why_not() -> None:
    """A new pool: use `Shares`, `FairThreads` or `ProcessPool`; or list it here."""
    found = {
        pool
        for folder in ("gateway", "plugins/*/gateway_*", "backends/*/gateway_*")
        for root in ROOT.glob(folder)
        for path in root.rglob("*.py")
        for pool in _pools(path)
    }
    assert found == set(KNOWN)


def test_the_owner_of_a_call_in_a_pool_of_processes_is_never_what_a_request_chooses() -> None:
    """`key` is the owner; whoever passes none gets that of the request."""
    keys = set()
    for folder in ("gateway", "plugins/*/gateway_*", "backends/*/gateway_*"):
        for root in ROOT.glob(folder):
            for path in root.rglob("*.py"):
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "run":
                        keys |= {
                            ast.unparse(each.value) for each in node.keywords if each.arg == "key"
                        }
    assert keys <= {"owner", "key", "self._owner"}


@contextmanager
def working_for(owner: str) -> Iterator[None]:
    with within(RequestContext("req_1", principal=Principal(name=owner))):
        yield


async def test_results_of_many_servers_of_one_owner_are_checked_in_turns() -> None:
    """Each URL has a check of its own; they have one pool, and the owner of the request counts."""
    ended: list[str] = []
    async with ProcessPool(processes=1) as pool:

        def check() -> OutputCheck:
            made = OutputCheck(pool)
            schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
            made.listed(
                [Tool(name="t", input_schema={"type": "object"}, _meta={OUTPUT_SCHEMA: schema})]
            )
            return made

        async def checked(owner: str) -> None:
            result = CallToolResult(content=[], structured_content={"a": 1})
            with working_for(owner):
                assert await check().problem("t", result) == ""
            ended.append(owner)

        hers = [asyncio.create_task(checked("alice")) for _ in range(12)]
        await asyncio.sleep(0)
        await asyncio.gather(checked("bob"), *hers)
    assert ended.index("bob") <= 2, "one runs, and one waits before him"


def test_many_urls_of_one_owner_push_out_no_list_of_another() -> None:
    config = RemoteServersConfig(enabled=True, allow_hosts=["*"])
    servers = RemoteServers(config, RemoteGuard(config), ClosingConnections(), ProcessPool())

    def kept(owner: str, url: str) -> Any:
        tool = McpTool(server_label="x", server_url=url)
        with working_for(owner):
            return servers.server(tool, url, owner=owner).tool_list

    his = [kept("bob", f"https://bob.net/{number}") for number in range(3)]
    for number in range(2 * KEPT_LISTS):
        kept("alice", f"https://a.net/{number}")
    assert [kept("bob", f"https://bob.net/{number}") for number in range(3)] == his


class _Events(EventBatchWriter):
    """Stores nothing, with a connection that has turns."""

    def __init__(self, connections: Shares) -> None:
        super().__init__()
        self._connections = connections

    async def store(self, batch: Sequence[BatchEntry]) -> Sequence[int]:
        async with self._connections.slot():
            return [len(each.events) for each in batch]

    def deliver(self, entry: BatchEntry, length: int) -> None:
        pass


async def test_events_of_all_wait_for_no_turn_of_whose_event_was_first() -> None:
    connections = Shares(4)
    events = _Events(connections)

    async def append(owner: str) -> bool:
        with working_for(owner):
            return await events.append(f"resp_{owner}", [b"1"], last=True, attempt=1)

    for _ in range(3):  # as many as one owner may have
        await connections.take("alice")
    both = [asyncio.create_task(append(owner)) for owner in ("alice", "bob")]
    for _ in range(20):
        await asyncio.sleep(0)
    done = [each.done() for each in both]
    for _ in range(3):
        connections.leave("alice")
    await asyncio.gather(*both)
    assert done == [True, True]


STORES = ("memory", "sql", "sqlite", "redis", "postgres")
IN_THE_OWNERS_CONTEXT = {"self._run(operation, isolation='read_committed', readonly=False)"}
AT_THE_START = {"self._listen(ready)"}


def test_what_a_store_does_for_all_is_done_in_the_context_of_none() -> None:
    """A task that lives on when a request has begun it: `create_task(..., context=Context())`, or it is listed above."""
    found = {
        ast.unparse(node.args[0])
        for folder in ("gateway/storage", *(f"plugins/{each}" for each in STORES))
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "create_task"
        and not any(each.arg == "context" for each in node.keywords)
    }
    assert found == IN_THE_OWNERS_CONTEXT | AT_THE_START
