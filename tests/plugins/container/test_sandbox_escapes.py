"""Code in a sandbox does not get out, whatever it tries, and the machine does not feel it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gateway
from gateway_container.config import MIB
from gateway_container.jail.spec import SandboxLimits
from gateway_container.sandbox.answers import CellResult, CommandResult
from gateway_container.sandbox.isolation import Isolation
from gateway_container.sandbox.process import Sandbox, SandboxEnded, start_sandbox
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

LIMITS = SandboxLimits(memory=256 * MIB, disk=16 * MIB, processes=32, open_files=64, cpu_seconds=60)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about how soon a sandbox answers or ends, but for the tests that say so."""
    monkeypatch.setattr("gateway_container.sandbox.process._MARGIN", 60.0)
    monkeypatch.setattr("gateway_container.sandbox.process._TO_END", 60.0)


@pytest.fixture
async def sandbox(isolation: Isolation, tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = await start_sandbox(isolation, f"litegate-{tmp_path.name}", LIMITS, seconds=60)
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def cell(sandbox: Sandbox, code: str, *, seconds: float = 60.0) -> CellResult:
    return await sandbox.ask(
        "cell", CellResult, seconds=seconds, code=textwrap.dedent(code), limit=20_000
    )


async def said(sandbox: Sandbox, code: str) -> str:
    """What a cell prints; it must end by itself."""
    ran = await cell(sandbox, code)
    assert (ran.failed, ran.died, ran.stopped) == (None, None, None), ran
    return ran.logs.strip()


async def refused_syscalls(sandbox: Sandbox, code: str) -> str:
    """The name of the error that a piece of code meets."""
    body = textwrap.indent(textwrap.dedent(code), "    ")
    tried = f"try:\n{body}\nexcept BaseException as e:\n    print(type(e).__name__)\nelse:\n    print('escaped')"
    return await said(sandbox, tried)


async def works(sandbox: Sandbox) -> None:
    """The sandbox, or at least its maker, goes on."""
    assert await said(sandbox, "print(6 * 7)") == "42"


# Files.


PATHS = (
    "/etc/shadow",
    "/etc/hostname",
    "/root/.bashrc",
    "/home",
    "/var",
    "/work",
    "/opt",
    "/proc/1/environ",
    "/proc/1/root/etc/shadow",
    "/proc/kcore",
    "/proc/cmdline",
    "/proc/sys/kernel/hostname",
    "/sys",
    "/dev/mem",
    "/dev/kmsg",
    "/dev/vda",
    "/dev/sda",
    "/run/docker.sock",
    "/mnt/data/../../../../../etc/shadow",
    gateway.__file__,
    __file__,
)


async def test_the_hosts_files_are_not_there(sandbox: Sandbox) -> None:
    met = {
        await refused_syscalls(sandbox, way)
        for path in PATHS
        for way in (f"open({path!r}).read()", f"__import__('os').listdir({path!r})")
    }
    assert met <= {"FileNotFoundError", "PermissionError", "NotADirectoryError"}


async def test_a_secret_of_the_host_is_not_found_by_looking_everywhere(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "litegate-secret-file").write_text("x")
    found = await said(
        sandbox,
        """
        import os
        hits = [f for _, _, files in os.walk('/') for f in files if f.startswith('litegate-secret')]
        print(hits, os.path.exists('/run/inside/agent.py'))
        """,
    )
    assert found == "[] True"


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/usr/x",
        "/etc/passwd",
        "/run/inside/agent.py",
        "/dev/x",
        "/bin/x",
        sys.base_prefix + "/x",
    ],
)
async def test_nothing_is_written_but_in_its_own_folders(sandbox: Sandbox, path: str) -> None:
    assert await refused_syscalls(sandbox, f"open({path!r}, 'w')") in {"OSError", "PermissionError"}


async def test_links_out_of_the_folder_lead_nowhere(sandbox: Sandbox, tmp_path: Path) -> None:
    target = tmp_path / "outside"
    target.write_text("secret")
    code = f"import os; os.symlink({str(target)!r}, '/mnt/data/a'); open('/mnt/data/a').read()"
    assert await refused_syscalls(sandbox, code) == "FileNotFoundError"
    code = "import os; os.link('/usr/bin/env', '/mnt/data/b')"
    assert await refused_syscalls(sandbox, code) in {"OSError", "PermissionError"}


async def test_the_environment_is_its_own(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITEGATE_TEST_SECRET", "hunter2")
    sandbox = await start_sandbox(isolation, f"litegate-{tmp_path.name}", LIMITS, seconds=60)
    try:
        names = await said(sandbox, "import os; print(sorted(os.environ))")
        every = await said(
            sandbox,
            """
            import os
            for number in filter(str.isdigit, os.listdir('/proc')):
                try: print(open(f'/proc/{number}/environ').read())
                except OSError: pass
            """,
        )
    finally:
        await sandbox.close()
    assert names == "['HOME', 'LANG', 'MPLBACKEND', 'MPLCONFIGDIR', 'PATH', 'TERM']"
    assert "hunter2" not in every


async def test_no_descriptor_leads_out(sandbox: Sandbox) -> None:
    """But the pipes of its own agent."""
    kinds = await said(
        sandbox,
        """
        import os
        kinds = set()
        for number in os.listdir('/proc/self/fd'):
            try: kinds.add(os.readlink(f'/proc/self/fd/{number}').split(':')[0])
            except OSError: pass
        print(sorted(kinds - {'pipe', '/dev/null'}))
        """,
    )
    assert kinds in ("[]", "['/proc/3/fd']") or kinds.startswith("['/proc/")


async def test_devices_are_harmless_and_few(sandbox: Sandbox) -> None:
    names = await said(sandbox, "import os; print(sorted(os.listdir('/dev')))")
    assert names == str(
        sorted(
            ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]
        )
    )
    code = "import os, stat; os.mknod('/mnt/data/sda', 0o600 | stat.S_IFBLK, os.makedev(8, 0))"
    assert await refused_syscalls(sandbox, code) == "PermissionError"


# The network.


@pytest.mark.parametrize(
    "family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"]
)
async def test_there_are_no_sockets(sandbox: Sandbox, family: str) -> None:
    code = f"import socket; socket.socket(socket.{family}, socket.SOCK_STREAM)"
    assert await refused_syscalls(sandbox, code) == "PermissionError"


async def test_a_server_of_the_host_is_not_reached(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)"
        assert await refused_syscalls(sandbox, code) in {"PermissionError", "OSError"}
        shell = await sandbox.ask(
            "run",
            CommandResult,
            seconds=60.0,
            command=["/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"],
            limit=1000,
        )
        assert shell.code != 0
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()


async def test_pairs_of_sockets_serve_within(sandbox: Sandbox) -> None:
    """asyncio and multiprocessing need them; they lead nowhere else."""
    code = """
        import asyncio, multiprocessing, socket
        async def main(): return await asyncio.sleep(0, 'asyncio')
        print(asyncio.run(main()))
        with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))
        a, b = socket.socketpair()
        a.sendto(b'x', b'') if False else print('pair')
        """
    assert await said(sandbox, code) == "asyncio\n[1, 2]\npair"


# System calls.

CALLS: dict[str, str] = {
    "mount": "libc.mount(b'none', b'/mnt', b'tmpfs', 0, None)",
    "umount": "libc.umount2(b'/mnt/data', 2)",
    "remount": "libc.mount(b'', b'/usr', b'', 0x1020, None)",
    "chroot": "libc.chroot(b'/mnt/data')",
    "pivot_root": "libc.syscall(155, b'.', b'.')",
    "unshare of users": "libc.unshare(0x10000000)",
    "unshare of mounts": "libc.unshare(0x00020000)",
    "clone into namespaces": "libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "clone3": "libc.syscall(435, 0, 0)",
    "setns": "libc.setns(os.open('/proc/self/ns/user', 0), 0)",
    "ptrace of its parent": "libc.ptrace(16, os.getppid(), 0, 0)",
    "the memory of another": "libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
    "becoming root": "libc.setuid(0)",
    "capabilities": "libc.prctl(23, 21, 0, 0, 0) == 1 and 0 or -1",
    "new privileges": "libc.prctl(38, 0, 0, 0, 0)",
    "bpf": "libc.syscall(321, 0, 0, 0)",
    "perf events": "libc.syscall(298, 0, 0, 0, 0, 0)",
    "io_uring": "libc.syscall(425, 1, 0)",
    "userfaultfd": "libc.syscall(323, 0)",
    "the kernel's log": "libc.klogctl(3, 0, 0)",
    "key rings": "libc.syscall(250, 0, -3, 1)",
    "the host name": "libc.sethostname(b'x', 1)",
    "a handle of a file": "libc.syscall(304, -1, 0, 0)",
    "reboot": "libc.reboot(0)",
    "shared memory segments": "libc.shmget(0, 4096, 0o1600)",
    "memory files": "libc.memfd_create(b'x', 0)",
    "another personality": "libc.personality(0x0040000)",
    "32-bit numbers": "libc.syscall(0x40000000 + 39)",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are of x86_64")
async def test_calls_to_the_kernel_are_refused(sandbox: Sandbox) -> None:
    await cell(sandbox, "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)")
    answers = {what: await said(sandbox, f"print({call})") for what, call in CALLS.items()}
    assert answers == dict.fromkeys(CALLS, "-1")


async def test_programs_of_another_architecture_are_ended(sandbox: Sandbox) -> None:
    """The 32-bit entry into the kernel goes past a filter that looks at numbers only."""
    code = """
        import ctypes, mmap
        memory = mmap.mmap(-1, 4096, prot=7)
        memory.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, 20; int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
        """
    ran = await cell(sandbox, code)
    assert ran.died is not None
    assert ran.logs == ""


async def test_no_program_runs_with_more_rights(sandbox: Sandbox) -> None:
    code = """
        import subprocess
        for program in ('su', 'sudo', 'mount', 'passwd', 'ping'):
            try: print(subprocess.run([program, '-V' if program == 'mount' else 'x'], capture_output=True).returncode)
            except OSError: pass
        print([line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapPrm', 'CapBnd'))])
        import os; print(os.getresuid(), os.getgroups())
        """
    lines = (await said(sandbox, code)).splitlines()
    assert lines[-2] == str(["0" * 16] * 3)
    assert lines[-1].startswith("(1000, 1000, 1000)")


# Other processes.


async def test_other_processes_are_not_seen(sandbox: Sandbox) -> None:
    numbers = await said(
        sandbox, "import os; print(sorted(filter(str.isdigit, os.listdir('/proc'))))"
    )
    assert len(numbers.split(",")) <= 3, numbers
    code = f"import os; os.kill({os.getpid() if os.getpid() > 40 else 99999}, 0)"
    assert await refused_syscalls(sandbox, code) == "ProcessLookupError"


async def test_signals_to_its_parents_stay_within(sandbox: Sandbox) -> None:
    await cell(sandbox, "import os, signal; os.kill(1, signal.SIGKILL); os.killpg(0, 0)")
    await works(sandbox)


async def test_who_kills_all_kills_only_the_sandbox(isolation: Isolation, sandbox: Sandbox) -> None:
    other = await start_sandbox(isolation, "litegate-other", LIMITS, seconds=60)
    try:
        with pytest.raises(SandboxEnded, match="died"):
            await cell(
                sandbox, "import os, signal; os.kill(-1, signal.SIGKILL); os.kill(os.getppid(), 9)"
            )
        await works(other)
    finally:
        await other.close()


async def test_a_stopped_agent_is_not_waited_for_for_ever(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_container.sandbox.process._MARGIN", 1.0)
    monkeypatch.setattr("gateway_container.sandbox.process._TO_END", 1.0)
    with pytest.raises(SandboxEnded, match="did not answer"):
        await cell(sandbox, "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)", seconds=0.5)


@pytest.mark.parametrize(
    "answer",
    [
        "b'no json\\n'",
        "b'{}\\n'",
        "b'[1]\\n'",
        'b\'{"images": ["<script>"]}\\n\'',
        "b'x' * (20 << 20)",
    ],
)
async def test_forged_answers_harm_only_the_sandbox(sandbox: Sandbox, answer: str) -> None:
    """The pipe on which cells are answered is open to their code."""
    code = f"""
        import os, sys
        for number in range(3, 64):
            try: os.write(number, {answer})
            except OSError: pass
        """
    try:
        ran = await cell(sandbox, code, seconds=3.0)
    except SandboxEnded:
        return
    assert ran.images in (None, [])


# What a sandbox uses.


async def test_a_fork_bomb_is_bounded_and_ends_with_its_call(sandbox: Sandbox) -> None:
    ran = await sandbox.ask(
        "run",
        CommandResult,
        seconds=2.0,
        command=["/bin/sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 5"],
        limit=1000,
    )
    assert ran.timed_out or ran.code is not None
    assert sum("/bin/sh" in line for line in command_lines()) < 3 * LIMITS.processes


def command_lines() -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append(
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
    return found


async def test_forking_in_a_cell_is_bounded(sandbox: Sandbox) -> None:
    code = """
        import os, time
        made = 0
        try:
            while made < 500:
                if os.fork() == 0:
                    time.sleep(60); os._exit(0)
                made += 1
        except OSError as error:
            print(type(error).__name__, made < 64)
        """
    assert await said(sandbox, code) == "BlockingIOError True"
    await works(sandbox)

    async def ended() -> bool:
        left = await said(sandbox, "print(len(list(filter(str.isdigit, os.listdir('/proc')))))")
        return int(left) <= 3

    await wait_until_async(ended, "what a cell leaves is ended with it")


async def test_threads_are_bounded(sandbox: Sandbox) -> None:
    code = """
        import threading, time
        stop = threading.Event()
        try:
            for number in range(500): threading.Thread(target=stop.wait, daemon=True).start()
        except RuntimeError: print(number < 64)
        stop.set()
        """
    assert await said(sandbox, code) == "True"


async def test_memory_is_bounded(sandbox: Sandbox) -> None:
    ran = await cell(sandbox, "x = bytearray(4 << 30)")
    assert "MemoryError" in ran.logs
    ran = await cell(sandbox, "x = [bytearray(b'x' * (32 << 20)) for _ in range(64)]")
    assert ran.died is not None or "MemoryError" in ran.logs
    await works(sandbox)


@pytest.mark.parametrize("folder", ["/mnt/data", "/tmp", "/dev/shm"])
async def test_disk_is_bounded(sandbox: Sandbox, folder: str) -> None:
    code = f"""
        import os, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        written = 0
        try:
            for number in range(64):
                with open('{folder}/%d' % number, 'wb') as file: written += file.write(b'x' * (1 << 20))
        except OSError as error: print(error.errno in (27, 28), written <= 16 << 20)
        for name in os.listdir('{folder}'): os.unlink('{folder}/' + name)
        """
    assert await said(sandbox, code) == "True True"


async def test_numbers_of_files_are_bounded(sandbox: Sandbox) -> None:
    code = "files = [open('/dev/null') for _ in range(1000)]"
    assert await refused_syscalls(sandbox, code) == "OSError"
    code = "[open('/mnt/data/%d' % n, 'w').close() for n in range(100_000)]"
    assert await refused_syscalls(sandbox, code) == "OSError"


async def test_processor_time_is_bounded(isolation: Isolation) -> None:
    limits = SandboxLimits(memory=256 * MIB, disk=MIB, processes=32, open_files=64, cpu_seconds=1)
    sandbox = await start_sandbox(isolation, "litegate-cpu", limits, seconds=60)
    try:
        ran = await cell(sandbox, "while True: pass", seconds=60)
        assert ran.died is not None
        assert ran.stopped is None
    finally:
        await sandbox.close()


async def test_huge_output_is_cut_and_costs_no_memory(sandbox: Sandbox) -> None:
    ran = await cell(sandbox, "print('x' * 50_000_000)")
    assert len(ran.logs) < 21_000
    assert "bytes cut out" in ran.logs
    ran = await cell(sandbox, "while True: print('y' * 65536)", seconds=1.0)
    assert ran.stopped == "timed out"
    assert len(ran.logs) < 21_000
    await works(sandbox)


async def test_output_that_is_no_text_becomes_text(sandbox: Sandbox) -> None:
    ran = await cell(sandbox, "import os; os.write(1, bytes(range(256))); print('\\udcff', '\\0')")
    assert "\ufffd" in ran.logs
    assert "\\udcff" in ran.logs
    ran.logs.encode()


# The end.


async def test_nothing_is_left_when_it_is_closed(isolation: Isolation) -> None:
    sandbox = await start_sandbox(isolation, "litegate-closed", LIMITS, seconds=60)
    mark = f"{time.time_ns()}"
    await cell(
        sandbox,
        f"""
        import subprocess
        subprocess.Popen(['/bin/sleep', '{mark}'], start_new_session=True)
        """,
    )
    await wait_until_async(
        lambda: any(mark in line for line in command_lines()),
        "the program in the sandbox has started",
    )
    await sandbox.close()
    assert not any(mark in line for line in command_lines())
    with pytest.raises(SandboxEnded):
        await works(sandbox)


async def test_a_killed_keeper_takes_the_sandbox_with_it(sandbox: Sandbox) -> None:
    os.kill(sandbox.process_id, 9)
    await wait_until_async(lambda: not sandbox.alive, "the sandbox has ended")
    with pytest.raises(SandboxEnded):
        await works(sandbox)


async def test_a_killed_gateway_takes_its_sandboxes_with_it(tmp_path: Path) -> None:
    """SIGKILL leaves nobody time to tidy up."""
    mark = f"{time.time_ns()}"
    code = f"""
        import asyncio, os, signal
        from gateway_container.config import ContainersConfig
        from gateway_container.sandbox.answers import CommandResult
        from gateway_container.sandbox.choice import choose_isolation, limits_of
        from gateway_container.sandbox.process import start_sandbox

        async def main():
            config = ContainersConfig()
            isolation = await choose_isolation(config)
            sandbox = await start_sandbox(isolation, 'litegate-killed', limits_of(config), seconds=60)
            asyncio.create_task(sandbox.ask('run', CommandResult, seconds=600.0, command=['/bin/sleep', '{mark}'], limit=100))
            print('ready', flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
        """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(code), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        pytest.skip("no sandbox can be had here")
    await wait_until_async(
        lambda: any(f"sleep {mark}" in line for line in command_lines()), "the command runs"
    )
    process.kill()
    await process.wait()
    await wait_until_async(
        lambda: not any(f"sleep {mark}" in line for line in command_lines()), "it has ended"
    )
