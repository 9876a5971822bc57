"""How the engine starts, fails, dies and ends: each test starts vLLM anew."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError, EngineUnavailable
from gateway.plugins.protocols import EngineOutput, EngineRequest
from gateway_vllm import VllmConfig

pytest.importorskip("vllm", reason="vLLM is not installed", exc_type=ImportError)
psutil = pytest.importorskip("psutil")


def descendants() -> list[Any]:
    """vLLM's processes below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        # One of an earlier test may have ended.
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if "VLLM::" in "".join(process.cmdline()):
                found.append(process)
    return found


def gone(processes: list[Any], *, within: float) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=within)
    return not alive


def test_ctrl_c_does_not_reach_the_engine_and_closing_ends_everything(start_engine: Any) -> None:
    others = {process.pid for process in descendants()}
    served = start_engine()
    processes = [process for process in descendants() if process.pid not in others]
    assert processes

    async def interrupted() -> list[EngineOutput]:
        outputs: list[EngineOutput] = []
        async for output in served.engine.generate(served.ask(max_tokens=200, ignore_eos=True)):
            if not outputs:
                # As a terminal does; the server's own process handles it and lets its streams end.
                for process in processes:
                    process.send_signal(signal.SIGINT)
            outputs.append(output)
        return outputs

    outputs = served.run(interrupted())
    assert outputs[-1].finish_reason == "length"
    assert sum(len(output.token_ids) for output in outputs) == 200

    async def begin() -> asyncio.Task[str]:
        began = asyncio.Event()

        async def read() -> str:
            try:
                async for output in served.engine.generate(endless):  # noqa: B007
                    began.set()
            except EngineUnavailable:
                return "unavailable"
            return str(output.finish_reason)

        task = asyncio.create_task(read())
        await began.wait()
        return task

    endless = served.ask(max_tokens=900, ignore_eos=True)
    task = served.run(begin())
    started = time.monotonic()
    served.close()
    assert time.monotonic() - started < 60
    assert task.result() in ("abort", "unavailable")
    assert gone(processes, within=2)
    with pytest.raises(EngineUnavailable):
        asyncio.run(served.engine.health())


def test_a_dead_engine_is_unavailable_for_running_and_later_requests(start_engine: Any) -> None:
    others = {process.pid for process in descendants()}
    served = start_engine()
    processes = [process for process in descendants() if process.pid not in others]
    [core] = [process for process in processes if "EngineCore" in "".join(process.cmdline())]

    async def read(request: EngineRequest) -> None:
        number = 0
        async for _ in served.engine.generate(request):
            number += 1
            if number == 3:
                core.kill()

    request = served.ask(max_tokens=900, ignore_eos=True)
    with pytest.raises(EngineUnavailable) as caught:
        served.run(read(request))
    assert "killed by signal 9" in caught.value.message
    for ask in (served.engine.health(), served.engine.check(request), read(request)):
        with pytest.raises(EngineUnavailable):
            served.run(ask)
    assert gone(processes, within=20)


def test_a_server_that_is_killed_leaves_no_engine_behind(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER.format(model=environment["model"]))
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        assert any(line.startswith("ready") for line in process.stdout)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) > 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert gone(children, within=25)


SERVER = """
import asyncio
from gateway.plugins.hookspecs import EngineContext
from gateway_vllm import VllmConfig, open_engine

async def main():
    config = VllmConfig(enforce_eager=True, max_num_seqs=4)
    context = EngineContext(name="tiny", path={model!r}, max_model_len=256)
    async with open_engine(config, context):
        print("ready", flush=True)
        await asyncio.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_model_that_cannot_be_loaded_is_refused_with_the_engine_s_own_reason(
    start_engine: Any, tmp_path: Path, environment: dict[str, str]
) -> None:
    model = tmp_path / "model"
    shutil.copytree(environment["model"], model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000_000])
    with pytest.raises(ConfigurationError) as caught:
        start_engine(path=model)
    assert "'tiny'" in str(caught.value)
    assert "SafetensorError" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (VllmConfig(args={"max_num_seq": 3}), 'did you mean "max_num_seqs"?'),
        (VllmConfig(dtype="float12"), "dtype: "),
        (VllmConfig(quantization="nonsense"), "nonsense"),
    ],
)
def test_a_wrong_argument_is_refused_with_a_reason(
    start_engine: Any, config: VllmConfig, words: str
) -> None:
    with pytest.raises(ConfigurationError, match="tiny") as caught:
        start_engine(config)
    assert words in str(caught.value)


def test_a_path_without_a_model_is_refused(start_engine: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        start_engine(path=tmp_path / "nothing")


def test_usage_statistics_are_off_unless_they_were_set(served: Any) -> None:
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    assert os.environ["DO_NOT_TRACK"] == "1"
