"""System calls that Python does not wrap. Each raises `OSError` that names the call that failed."""

from __future__ import annotations

import ctypes
import os
import platform
import resource

MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
OUTER_NAMESPACES = (
    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
)
"""All namespaces except mount: the process that builds a sandbox's root must keep its own."""

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 24, 22, 38
PR_SET_CHILD_SUBREAPER = 36
PR_SET_DUMPABLE = 4
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SECCOMP_MODE_FILTER = 2

_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 0x1, 0x2, 0x4
_MOUNT_SETATTR, _CLOSE_RANGE = 442, 436
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
_libc.umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.syscall.restype = ctypes.c_long


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), flags, options.encode() or None
    )
    _check(result, f"mount {kind or source} on {target}")


def bind(source: str, target: str) -> None:
    """Bind-mount `source` at `target`, with all mounts below it, without devices and set-user-ID bits."""
    mount(source, target, flags=MS_BIND | MS_REC)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def protect(target: str, *, read_only: bool = True, devices: bool = False) -> None:
    """Make a mount and all mounts below it read-only, without set-user-ID bits and devices. Needs Linux 5.12."""
    wanted = _ATTR_NOSUID | (_ATTR_RDONLY if read_only else 0) | (0 if devices else _ATTR_NODEV)
    attributes = _MountAttributes(wanted, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(target.encode()),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(result, f"mount_setattr {target}")


def unmount(target: str) -> None:
    """Unmount `target`; bind mounts made from it stay."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def enter_root(new: str) -> None:
    """Make `new`, which is a mount, the root of this mount namespace. Nothing of the old root stays reachable."""
    os.chdir(new)
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root is not known for {platform.machine()}")
    _check(_libc.syscall(ctypes.c_long(number), b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount the old root")
    os.chdir("/")


def set_host_name(name: str) -> None:
    """Set the host name without the module `socket`, because Python's own files may no longer be reachable."""
    _check(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def file_system_type(path: str) -> int:
    """The magic number of the file system that `path` is on."""
    about = ctypes.create_string_buffer(
        512
    )  # a `struct statfs`, which is smaller and begins with it
    _check(_libc.statfs(os.fsencode(path), about), f"statfs {path}")
    return ctypes.c_long.from_buffer(about).value & 0xFFFFFFFF


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def prctl(option: int, *arguments: int) -> None:
    padded = [*arguments, 0, 0, 0, 0][:4]
    _check(_libc.prctl(option, *(ctypes.c_ulong(each) for each in padded)), f"prctl {option}")


def close_from(first: int) -> None:
    """Close every descriptor from `first` upwards."""
    last = ctypes.c_uint(0xFFFFFFFF)
    if _libc.syscall(ctypes.c_long(_CLOSE_RANGE), ctypes.c_uint(first), last, ctypes.c_uint(0)) < 0:
        os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[1])  # before Linux 5.9


def hide() -> None:
    """Deny other processes of the same user access to the memory and the descriptors of this process, until it
    executes a program."""
    prctl(PR_SET_DUMPABLE, 0)


def bound_capabilities() -> None:
    """Ensure that no program executed from here on gains a capability. Needs CAP_SETPCAP."""
    for number in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:
            break  # the kernel knows no further capabilities


def drop_capabilities() -> None:
    """Drop every capability of this process."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)), "capset")


def set_seccomp(program: bytes) -> None:
    """Filter this process's system calls, and those of all its children; `program` is an array of `sock_filter`."""

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    held = Program(len(program) // 8, program)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(held))
