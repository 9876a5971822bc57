"""The system call filter: refuses calls that affect the kernel or other processes, and calls that are not known here.

Refused calls fail with EPERM. Calls newer than this list fail with ENOSYS, so that programs fall back. A call of
another architecture ends the process.
"""

from __future__ import annotations

import errno
import platform
import struct

_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # Mounts, namespaces, other roots.
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225),
    "sysfs": (139, None), "uselib": (134, None), "fanotify_init": (300, 262),
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "process_madvise": (440, 440),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
    # The kernel and the machine.
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, None),
    "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162), "acct": (163, 89),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "personality": (135, 92), "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42), "vhangup": (153, 58), "mbind": (237, 235), "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # The old asynchronous I/O interface, whose limit is machine-wide.
    "io_setup": (206, 0),
    # Kernel key rings, which no namespace isolates.
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    # No network; of sockets, only pairs. No memory that escapes both the file size limit and tmpfs limits.
    "socket": (41, 198), "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # Pages that a pipe or a socket holds and that no process has: without a cgroup, nothing would count them.
    "vmsplice": (278, 75), "splice": (275, 76), "tee": (276, 77), "sendfile": (40, 71),
    # Larger buffers. `memory.py` counts sockets with the size that the kernel gives them.
    "setsockopt": (54, 208),
}  # fmt: skip
"""System call numbers by name, on x86_64 and aarch64 (from the headers of Linux 6.1)."""

_CLONE, _CLONE3 = (56, 220), 435
_NEWEST = 450
_NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEW* of user, mount, pid, net, ipc, uts, cgroup and time."""

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


def is_known(machine: str | None = None) -> bool:
    """Whether a filter exists for this machine's architecture."""
    return (machine or platform.machine()) in _MACHINES


def refused_syscalls(machine: str | None = None) -> dict[str, int]:
    """The refused calls of an architecture: numbers by name."""
    column = _MACHINES[machine or platform.machine()][0]
    return {name: n for name, both in _REFUSED.items() if (n := both[column]) is not None}


def make_filter(machine: str | None = None) -> bytes:
    """The filter as a classic BPF program."""
    column, architecture = _MACHINES[machine or platform.machine()]
    no, later = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_ABOVE, 0, 1, _NEWEST),  # includes calls of the x32 ABI
        (_RETURN, 0, 0, later),
        (_EQUAL, 0, 1, _CLONE3),  # its flags are in memory, which a filter cannot inspect
        (_RETURN, 0, 0, later),
    ]
    for number in sorted(refused_syscalls(machine).values()):
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, no)]
    steps += [
        (_EQUAL, 0, 3, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NAMESPACE_FLAGS),
        (_RETURN, 0, 0, no),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
