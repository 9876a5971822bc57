"""Folders within folders, and folders that cannot be read, are told of; they break nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError
from gateway_container.config import MIB, ContainersConfig
from gateway_container.jail.spec import SandboxLimits
from gateway_container.sandbox.answers import CommandResult
from gateway_container.sandbox.isolation import Jail
from gateway_container.sandbox.process import start_sandbox

DEEP = """
import os
open('before', 'w').write('kept')
for number in range({depth}):
    os.mkdir('d')
    os.chdir('d')
open('lost', 'w').write('too deep')
os.chdir('/mnt/data')
print('do' + 'ne')
"""
LOCKED = """
import os
os.makedirs('locked/in')
open('locked/in/file', 'w').write('x')
open('after', 'w').write('kept')
os.chmod('locked', 0)
print('do' + 'ne')
"""
DEPTHS = (40, 1500, 5000)
"""Beyond what is kept, beyond the recursion limit, beyond the longest path that a system call takes."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from gateway_testing.server import run_gateway

    def call(code: str) -> list[dict[str, Any]]:
        return [{"call": {"name": "python", "arguments": {"code": code}}}]

    rules = [
        *({"when": f"depth {each}", "pieces": call(DEEP.format(depth=each))} for each in DEPTHS),
        {"when": "shut the door", "pieces": call(LOCKED)},
        {"when": "look", "pieces": call("import os; print('do' + 'ne', sorted(os.listdir('.')))")},
        {"when": "done", "pieces": [{"text": "Done."}]},
    ]
    config = {
        "models": {"m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}},
        "tools": {"python": {}},
        "resources": {"containers": {}},
    }
    try:
        with run_gateway(config, tmp_path_factory.mktemp("folders")) as running:
            yield running
    except ConfigurationError as error:
        pytest.skip(str(error))


def run(client: Any, container: str, said: str) -> Any:
    return client.responses.create(
        model="m",
        input=said,
        tools=[{"type": "code_interpreter", "container": container}],
        include=["code_interpreter_call.outputs"],
    )


@pytest.mark.parametrize("depth", DEPTHS)
def test_deeply_nested_folders_are_told_of_and_the_rest_is_kept(gateway: Any, depth: int) -> None:
    with gateway.client() as client:
        container = client.containers.create(name="deep").id
        for said in (f"depth {depth}", "look"):
            answer = run(client, container, said)
            assert answer.status == "completed"
            assert answer.output_text == "Done."
        files = [file.path for file in client.containers.files.list(container)]
        assert files == ["/mnt/data/before"]
        again = run(client, container, "look")
        assert "'before', 'd'" in str(again.output), "the container goes on"


def test_a_folder_that_cannot_be_read_is_told_of_and_the_rest_is_kept(gateway: Any) -> None:
    with gateway.client() as client:
        container = client.containers.create(name="locked").id
        assert run(client, container, "shut the door").output_text == "Done."
        files = [file.path for file in client.containers.files.list(container)]
        assert files == ["/mnt/data/after"]


@pytest.mark.slow
def test_without_isolation_too_deep_folders_are_removed_with_the_sandbox() -> None:
    limits = SandboxLimits(memory=256 * MIB, disk=MIB, processes=32, open_files=64, cpu_seconds=20)

    async def run() -> str:
        jail = Jail(ContainersConfig(unsafe=True), namespaces=False)
        sandbox = await start_sandbox(jail, "litegate-deep", limits, seconds=20)
        try:
            line = "pwd; for n in $(seq 3000); do mkdir d; cd d; done"
            command = ["/bin/sh", "-c", line]
            ran = await sandbox.ask("run", CommandResult, seconds=30, command=command, limit=9000)
            return ran.stdout.strip()
        finally:
            await sandbox.close()

    folder = asyncio.run(run())
    assert "litegate-deep" in folder
    assert not Path(folder).exists()
