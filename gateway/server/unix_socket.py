"""Listening on a Unix socket."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gateway.errors import ConfigurationError


@contextmanager
def bound_unix_socket(path: str, mode: int) -> Iterator[socket.socket]:
    """A socket that is bound to `path`, where only those whom `mode` lets write may connect. The file is removed at the end.

    A file that a server has left is replaced. Raises `ConfigurationError` if another server uses `path`, or if there is
    something else. A file `<path>.lock` is locked meanwhile, and stays.
    """
    lock = _lock(path)
    try:
        _remove_stale(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
            try:
                # Nobody can connect before the server listens, so that there is no moment of other permissions.
                bound.bind(path)
                os.chmod(path, mode)
                ours = os.lstat(path)
            except (OSError, ValueError) as error:
                raise cannot_listen(path, error) from error
            try:
                yield bound
            finally:
                with suppress(OSError):
                    if os.path.samestat(os.lstat(path), ours):
                        os.unlink(path)
    finally:
        os.close(lock)


def check_unix_socket(path: str) -> None:
    """Raise `ConfigurationError` if a server could not listen on `path`. Changes nothing there, as `bound_unix_socket`
    would; a server that is about to listen is not noticed."""
    if not _probe(path):
        folder = os.path.dirname(path) or "."
        if not os.access(folder, os.W_OK | os.X_OK):
            missing = errno.EACCES if os.path.isdir(folder) else errno.ENOENT
            raise cannot_listen(path, OSError(missing, os.strerror(missing)))


def cannot_listen(path: str, error: Exception) -> ConfigurationError:
    """The error for a path that cannot be listened on."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConfigurationError(
        f"The server cannot listen on the Unix socket {path}: {reason}. Choose another path with unix_socket under [server]."
    )


def _lock(path: str) -> int:
    """The descriptor of the locked lock file. Closing it unlocks the file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(f"{path}.lock", flags, 0o600)
    except (OSError, ValueError) as error:
        raise cannot_listen(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise _in_use(path) from error
    return lock


def _remove_stale(path: str) -> None:
    """Remove the file of a socket on which nobody listens."""
    if _probe(path):
        with suppress(FileNotFoundError):
            os.unlink(path)


def _probe(path: str) -> bool:
    """Whether the file of a socket on which nobody listens is there. Raises `ConfigurationError` if something else is."""
    try:
        if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConfigurationError(
                f"{path} exists and is not a Unix socket: remove it, or choose another path with unix_socket under [server]."
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(path)
    except FileNotFoundError:
        return False
    except ConnectionRefusedError:
        return True
    except BlockingIOError:
        pass  # somebody listens and has much to do
    except (OSError, ValueError) as error:
        raise cannot_listen(path, error) from error
    raise _in_use(path)


def _in_use(path: str) -> ConfigurationError:
    return ConfigurationError(
        f"Another server uses the Unix socket {path}: stop it, or choose another path with unix_socket under [server]."
    )
