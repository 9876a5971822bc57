"""The file system of a sandbox: the host's programs, read-only, and empty writable folders of its own."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from .libc import (
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    bind,
    enter_root,
    mount,
    protect,
    unmount,
)
from .spec import SandboxSpec

USER = 1000
"""User and group id in the sandbox."""

_DEVICES = ("null", "zero", "full", "random", "urandom")
_SAFE = MS_NOSUID | MS_NODEV
_NEW_ROOT = "/tmp"  # noqa: S108 - only a place to mount on, in a mount namespace of our own
_FILES = {
    "/etc/passwd": f"user:x:{USER}:{USER}::/mnt/data:/bin/sh\n",
    "/etc/group": f"user:x:{USER}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def build_root(spec: SandboxSpec) -> None:
    """Build the sandbox's root and leave the host's file system. Must run in new namespaces, with their capabilities."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    root = _NEW_ROOT
    sources = {path: os.path.realpath(path) for path in spec.shown if os.path.lexists(path)}
    descriptors = {path: os.open(real, os.O_PATH) for path, real in sources.items()}
    devices = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES}
    mount("tmpfs", root, "tmpfs", _SAFE, "size=1m,nr_inodes=4096,mode=755")
    _writable(root, spec)
    for path, descriptor in sorted(descriptors.items()):
        _show(descriptor, path, root)
    for name, descriptor in devices.items():
        _place(root + f"/dev/{name}", folder=False)
        bind(f"/proc/self/fd/{descriptor}", root + f"/dev/{name}")
        protect(root + f"/dev/{name}", read_only=False, devices=True)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", root + f"/dev/{name}")
    for descriptor in (*descriptors.values(), *devices.values()):
        os.close(descriptor)
    for path in spec.hidden:
        if os.path.isdir(root + path):
            mount("tmpfs", root + path, "tmpfs", _SAFE | MS_RDONLY, "size=4k,nr_inodes=2")
    for path, text in {**_FILES, **spec.files}.items():
        _place(root + path, folder=False)
        with open(root + path, "w", encoding="utf-8") as file:
            file.write(text)
    os.makedirs(root + "/proc", exist_ok=True)
    with suppress(OSError):
        # Refused if the host masks parts of its own /proc, as container engines do. Then the sandbox has no /proc.
        mount("proc", root + "/proc", "proc", _SAFE | MS_NOEXEC, "subset=pid")
    mount("tmpfs", root, flags=MS_REMOUNT | MS_RDONLY | _SAFE)
    enter_root(root)


def _writable(root: str, spec: SandboxSpec) -> None:
    """Mount one size-limited file system for everything writable, under its several names."""
    os.makedirs(root + "/writable", exist_ok=True)
    options = f"size={spec.limits.disk},nr_inodes=16384,mode=755,uid={USER},gid={USER}"
    mount("tmpfs", root + "/writable", "tmpfs", _SAFE, options)
    for name, path in (("data", spec.folder), ("tmp", "/tmp"), ("shm", "/dev/shm")):  # noqa: S108
        made = f"{root}/writable/{name}"
        os.mkdir(made)
        os.chown(made, USER, USER)
        _place(root + path, folder=True)
        bind(made, root + path)
    unmount(root + "/writable")


def _show(descriptor: int, path: str, root: str) -> None:
    if os.path.islink(path):  # /bin, if it is a link into /usr
        target = os.readlink(path)
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        os.symlink(target, root + path)
        return
    _place(root + path, folder=stat.S_ISDIR(os.fstat(descriptor).st_mode))
    bind(f"/proc/self/fd/{descriptor}", root + path)
    protect(root + path)


def _place(target: str, *, folder: bool) -> None:
    """Create a mount point."""
    os.makedirs(target if folder else os.path.dirname(target), exist_ok=True)
    if not folder and not os.path.lexists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
