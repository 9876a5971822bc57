"""Leaving while llama.cpp works: no hang, no crash, whatever the way out. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, sys
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EngineRequest, Sampling, TokensPrompt
from gateway_llamacpp import LlamaCppConfig, open_llamacpp

async def read(engine):
    request = EngineRequest(request_id="r", prompt=TokensPrompt(token_ids=[300]), sampling=Sampling(ignore_eos=True))
    async for output in engine.generate(request):
        pass

async def main():
    opened = open_llamacpp(LlamaCppConfig(n_parallel=4, n_ctx=4096), EngineContext(name="t", path=None))
    engine = await opened.__aenter__()
    tasks = [asyncio.create_task(read(engine)) for _ in range(8)]
    while engine._slots.free:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    WAY_OUT
    print("out", flush=True)

KEEP = []
asyncio.run(main())
"""

WAYS = {
    "closed properly": "await opened.__aexit__(None, None, None); await asyncio.gather(*tasks, return_exceptions=True)",
    "never closed": "pass",
    "never closed, kept alive": "KEEP.append(engine); KEEP.append(opened)",
    "an exception": "print('out', flush=True); raise SystemExit(0)",
    "tasks cancelled first": "[task.cancel() for task in tasks]; await opened.__aexit__(None, None, None)",
    "os._exit": "print('out', flush=True); os._exit(0)",
}


@pytest.mark.parametrize("way", WAYS)
def test_leaving_while_requests_run_is_clean(way):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("WAY_OUT", WAYS[way])],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.startswith("out")
    assert done.returncode == 0, done.stderr
    assert "terminate called" not in done.stderr
    assert done.stderr == ""
