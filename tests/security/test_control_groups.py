"""Limits of sandboxes are tried at the start. A control group that is none stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError
from gateway_container.config import MIB, ContainersConfig
from gateway_container.jail.cgroup import bounded_by, make_groups, why_unusable
from gateway_container.jail.libc import file_system_type
from gateway_container.jail.spec import SandboxLimits
from gateway_container.sandbox.choice import choose_isolation
from gateway_container.sandbox.isolation import Isolation, Jail
from gateway_container.sandbox.process import SandboxEnded, start_sandbox

LIMITS = SandboxLimits(memory=2**28, disk=MIB, processes=16, open_files=64, cpu_seconds=5)


def plain(folder: Path) -> str:
    """A folder that has the files of a control group, as one that somebody has tried to make."""
    for name in ("memory.max", "memory.swap.max", "pids.max", "cgroup.procs"):
        (folder / name).write_text("max\n")
    for name in ("cgroup.controllers", "cgroup.subtree_control"):
        (folder / name).write_text("cpu memory pids\n")
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("typo", "there is no such folder"),
        ("file", "there is no such folder"),
        ("plain", "is no control group of version 2, so nothing would be limited"),
        ("below", "is no control group of version 2"),
        ("/sys", "is no control group of version 2"),
        ("/proc", "is no control group of version 2"),
        ("/dev/shm", "is no control group of version 2"),
    ],
)
def test_a_control_group_that_is_none_stops_the_start(tmp_path: Path, kind: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    folder = plain(tmp_path)
    given = {
        "typo": f"{folder}/typo",
        "file": f"{folder}/file",
        "plain": folder,
        "below": f"{folder}/below",
    }.get(kind, kind)
    if kind == "below":
        os.mkdir(given)
    before = sorted(os.listdir(folder))
    with pytest.raises(ConfigurationError) as refused:
        asyncio.run(choose_isolation(ContainersConfig(cgroup=given)))
    assert str(refused.value).startswith(f"[resources.containers].cgroup: {given!r}: ")
    assert said in str(refused.value)
    assert bounded_by(given) == []
    assert sorted(os.listdir(folder)) == before, "nothing is made in it"


def test_nothing_is_made_where_the_machine_has_no_control_groups_of_the_version() -> None:
    folder = "/sys/fs/cgroup"
    if not os.path.isdir(folder) or file_system_type(folder) == 0x63677270:
        pytest.skip("this machine has version 2")
    assert why_unusable(folder) is not None
    assert make_groups(folder, LIMITS).bounds == []
    assert not any(name.startswith("litegate") for name in os.listdir(folder))


def test_a_group_without_the_controllers_is_named() -> None:
    for folder in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        if os.path.isdir(folder) and file_system_type(folder) == 0x63677270:
            break
    else:
        pytest.skip("this machine has no version 2")
    problem = why_unusable(folder)
    assert problem is None or "memory" in problem or "cannot" in problem


def test_a_sandbox_whose_group_cannot_be_made_any_more_does_not_start() -> None:
    """What the start has found limits each container, or the container is not started."""
    try:
        isolation = Jail(ContainersConfig(), namespaces=True, groups=False)
        asyncio.run(choose_isolation(ContainersConfig(isolation="namespaces")))
    except ConfigurationError as error:
        pytest.skip(str(error))
    isolation.bounds = ["memory"]
    with pytest.raises(SandboxEnded, match="no control group could be made that limits memory"):
        asyncio.run(start_sandbox(isolation, "litegate-none", LIMITS, seconds=20))


def test_what_the_start_tries_does_not_succeed_in_a_container(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "gateway.container")
    try:
        chosen = asyncio.run(choose_isolation(ContainersConfig(isolation="namespaces")))
    except ConfigurationError as error:
        pytest.skip(str(error))
    assert isinstance(chosen, Jail)
    assert chosen.bounds == bounded_by(None), "the first that was tried held what it promises"
    assert "does not limit" not in caplog.text


def test_an_engine_whose_limits_do_not_hold_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A program in the place of an engine that runs the agent without any limits."""
    engine = tmp_path / "engine"
    engine.write_text(
        f"#!{sys.executable}\nimport os, sys\nos.chdir({str(tmp_path)!r})\n"
        "if sys.argv[1] == 'run':\n"
        f"    code = sys.argv[-1].replace('/tmp/.agent', {str(tmp_path / 'agent')!r})\n"
        f"    os.execv({sys.executable!r}, [{sys.executable!r}, '-I', '-S', '-c', code])\n"
    )
    engine.chmod(0o755)
    config = ContainersConfig(
        isolation="engine",
        engine=str(engine),
        image="i",
        max_memory_bytes=64 * MIB,
        max_disk_bytes=MIB,
        max_processes=8,
    )
    chosen: Isolation = asyncio.run(choose_isolation(config))
    assert chosen.description.startswith("the container engine")
    [told] = [
        r.getMessage()
        for r in caplog.records
        if r.name == "gateway.container" and r.levelno == logging.WARNING
    ]
    assert told.endswith(
        "does not limit memory (max_memory_bytes) and files (max_disk_bytes) and processes (max_processes)"
    )
