"""Listening on a Unix socket."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gateway.base.errors import ConfigurationError


@contextmanager
def bound_unix_socket(path: str, mode: int) -> Iterator[socket.socket]:
    """Yield a socket that is bound to `path`. Only users with write permission by `mode` can connect.

    Replaces a socket file that an ended server has left, and removes the file at the end. Locks the file
    `<path>.lock` while the context is entered, and does not remove it. Raises `ConfigurationError` if another server
    uses `path`, or if `path` is not a socket.
    """
    lock = _lock(path)
    try:
        _remove_stale(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
            try:
                # No client can connect before the server listens, so the permissions are set in time.
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
    """Raise `ConfigurationError` if a server could not listen on `path`.

    Unlike `bound_unix_socket`, changes nothing. Does not detect a server that is about to listen.
    """
    if not _probe(path):
        folder = os.path.dirname(path) or "."
        if not os.access(folder, os.W_OK | os.X_OK):
            missing = errno.EACCES if os.path.isdir(folder) else errno.ENOENT
            raise cannot_listen(path, OSError(missing, os.strerror(missing)))


def cannot_listen(path: str, error: Exception) -> ConfigurationError:
    """The error for a path on which the server cannot listen."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConfigurationError(
        f"The server cannot listen on the Unix socket {path}: {reason}. Choose another path with unix_socket under [server]."
    )


def _lock(path: str) -> int:
    """Lock the lock file, and return its descriptor. Closing it unlocks the file. Raises `ConfigurationError`."""
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
    """Remove the socket file at `path` if no server listens on it."""
    if _probe(path):
        with suppress(FileNotFoundError):
            os.unlink(path)


def _probe(path: str) -> bool:
    """Whether there is a socket file at `path` on which no server listens; False if there is no file.

    Raises `ConfigurationError` if a server listens on it, or if the file is not a socket.
    """
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
        pass  # a server listens, and its backlog is full
    except (OSError, ValueError) as error:
        raise cannot_listen(path, error) from error
    raise _in_use(path)


def _in_use(path: str) -> ConfigurationError:
    return ConfigurationError(
        f"Another server uses the Unix socket {path}: stop it, or choose another path with unix_socket under [server]."
    )
