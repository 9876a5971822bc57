"""A file with the process id of a server, by which `gateway reload` finds it."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gateway.base.errors import ConfigurationError

logger = logging.getLogger("gateway.process.pid_file")


@contextmanager
def pid_file(config: Path) -> Iterator[None]:
    """Let `gateway reload` find this process by its configuration file `config`, while the context is entered.

    The file is locked, so that the file of an ended process is recognized. If it cannot be written, only logs a
    warning.
    """
    with ExitStack() as files:
        try:
            for path in _paths(config):
                # Each server has its own files, because several may use one configuration.
                files.enter_context(_locked(path.with_name(f"{path.name}.{os.getpid()}")))
        except (OSError, ConfigurationError) as error:
            logger.warning("`gateway reload` will not find this server: %s", error)
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Create and lock the file while the context is entered."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def servers_of(config: Path) -> list[int]:
    """The process ids of this user's running servers with the configuration file `config`."""
    found = set()
    for path in _paths(config):
        for each in path.parent.glob(f"{path.name}.*"):
            number = each.name.rpartition(".")[2]
            if number.isascii() and number.isdigit() and _is_locked(each):
                found.add(int(number))
    return sorted(found)


def _is_locked(path: Path) -> bool:
    """Whether another process holds the lock of the file. Removes a file that is not locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        with suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(descriptor)


def _paths(config: Path) -> list[Path]:
    """The prefixes of the files' paths, in a folder that only this user can write to. Raises `ConfigurationError`.

    There is one for the given path and one for the resolved path. A link may point to another file when the
    configuration is reloaded, as in Kubernetes' ConfigMaps, and another path may resolve to the same file.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"litegate-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigurationError(
            f"{folder} is not a folder that only this user can use; remove it."
        )
    ways = dict.fromkeys((config.absolute(), config.resolve()))
    return [folder / hashlib.sha256(os.fsencode(each)).hexdigest()[:32] for each in ways]
