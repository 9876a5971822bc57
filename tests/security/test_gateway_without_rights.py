"""A gateway that is not root keeps code apart as well; where the machine does not let it, it says so and does not start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROBE = """
import asyncio, logging, os, sys
from gateway.base.errors import ConfigurationError
from gateway.sdk import SessionContext, ToolCall
from gateway_container.config import ContainersConfig
from gateway_container.plugin import open_resource
from gateway_python.interpreter import PythonServer
from gateway_container.config import CallsConfig

async def main():
    config = ContainersConfig(
        python='/usr/bin/python3',
        unsafe='unsafe' in sys.argv, max_memory_bytes=256 << 20, max_total_memory_bytes=512 << 20, max_disk_bytes=16 << 20
    )
    async with open_resource(config) as containers:
        server = PythonServer(CallsConfig(time_limit=20), containers)
        async with server.session(SessionContext()) as session:
            for code in open(sys.argv[1]).read().split('# next\\n'):
                print((await session.call(ToolCall('python', {'code': code}))).text)

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format='%(levelname)s %(message)s')
try:
    asyncio.run(main())
except ConfigurationError as error:
    print('refused:', error)
"""
CELLS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def tried(what, do):
    try: result = do()
    except BaseException as error: print(what, type(error).__name__)
    else: print('REACHED', what, result)
for pid in (1, os.getppid()):
    for name in ('mem', 'environ', 'fd/0', 'fd/1', 'fd/3', 'fd/4', 'maps'):
        tried('%s of %d' % (name, pid), lambda: open('/proc/%d/%s' % (pid, name), 'rb').read(1))
tried('secret', lambda: open('SECRET').read())
tried('gateway', lambda: os.kill(NUMBER, 0))
for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_NETLINK): tried('socket', lambda: socket.socket(family))
tried('root', lambda: os.setuid(0))
tried('write', lambda: open('/usr/x', 'w'))
for call in ('ptrace(16, os.getppid(), 0, 0)', 'unshare(0x10000000)', 'mount(b"x", b"/mnt", b"tmpfs", 0, None)', 'shmget(0, 4096, 0o1600)'):
    print('REACHED ' + call if eval('libc.' + call) >= 0 else 'refused')
print(os.getuid(), sorted(os.environ))
# next
import os
made = 0
try:
    while made < 200:
        if os.fork() == 0: __import__('time').sleep(5); os._exit(0)
        made += 1
    print('REACHED', made)
except OSError as error: print('bounded', made < 64)
# next
try: held = [bytearray(b'x' * (32 << 20)) for _ in range(64)]; print('REACHED')
except MemoryError: print('no memory')
# next
print('the last', 6 * 7)
"""
# A user that runs nothing else: the limit of processes counts all those of a user, a test's PostgreSQL among them.
USER = str(40_000 + os.getpid() % 20_000)


def probe(folder: Path, *words: str, before: str = "", wrapper: tuple[str, ...] = ()) -> str:
    """What a process of another user says that opens containers and runs cells in one."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("becoming another user takes root and setpriv")
    if not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("there is no interpreter that everybody may run")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    secret = folder / "secret"
    secret.write_text("x")
    secret.chmod(0o644)
    cells = folder / "cells"
    cells.write_text(CELLS.replace("SECRET", str(secret)).replace("NUMBER", str(os.getpid())))
    temporary = folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    # This interpreter may lie where only root reads. The right to read is all that the user is given.
    command = [
        *wrapper, "setpriv", "--reuid", USER, "--regid", USER, "--clear-groups",
        "--inh-caps", "-all,+dac_read_search", "--ambient-caps", "-all,+dac_read_search", "--bounding-set", "-all,+dac_read_search",
        sys.executable, "-c", before + PROBE, str(cells), *words,
    ]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(temporary), "HOME": str(temporary)}
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, cwd=folder
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_gateway_that_is_not_root_keeps_code_apart(tmp_path: Path) -> None:
    said = probe(tmp_path)
    if said.startswith("refused: "):
        pytest.skip(said)
    assert "INFO containers: code is kept apart by namespaces" in said
    assert "REACHED" not in said, [line for line in said.splitlines() if "REACHED" in line]
    assert "1000 ['HOME', 'LANG', 'MPLBACKEND', 'MPLCONFIGDIR', 'PATH', 'TERM']" in said
    assert "bounded True" in said
    assert "no memory" in said or "signal 9" in said
    assert "the last 42" in said


REFUSE = """
from gateway_container.jail.libc import PR_SET_NO_NEW_PRIVS, prctl, set_seccomp
from gateway_container.jail.seccomp import make_filter
prctl(PR_SET_NO_NEW_PRIVS, 1)
set_seccomp(make_filter())  # as container engines filter: no namespaces, no mounts
"""


def test_where_namespaces_are_filtered_the_start_is_refused_in_a_sentence(tmp_path: Path) -> None:
    said = probe(tmp_path, before=textwrap.dedent(REFUSE))
    assert said.startswith("refused: [resources.containers]: this machine cannot keep code apart")
    assert "unshare: Operation not permitted" in said
    assert "`unsafe = true`" in said
    assert len(said.splitlines()) == 1


@pytest.mark.slow
def test_where_namespaces_are_filtered_code_runs_only_if_unsafe_is_said(tmp_path: Path) -> None:
    said = probe(tmp_path, "unsafe", before=textwrap.dedent(REFUSE))
    assert "WARNING containers: code is kept apart by NOTHING but resource limits" in said
    assert "the last 42" in said


def test_where_there_may_be_no_user_namespaces_the_start_is_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    line = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"'
    wrapper = ("unshare", "-U", "-r", "sh", "-c", line)
    if subprocess.run([*wrapper, "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not to be had here")
    run = subprocess.run(
        [*wrapper, sys.executable, "-c", PROBE, "/dev/null"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout.startswith("refused: [resources.containers]: this machine cannot keep code")
    assert "No space left on device" in run.stdout, "what the kernel says of it"
    assert len(run.stdout.splitlines()) == 1
