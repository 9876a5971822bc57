"""Listening on a Unix socket."""

from __future__ import annotations

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
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConfigurationError(
                f"{path} is there and is no Unix socket: remove it, or choose another path with unix_socket under [server]."
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    except BlockingIOError:
        pass  # somebody listens and has much to do
    except (OSError, ValueError) as error:
        raise cannot_listen(path, error) from error
    raise _in_use(path)


def _in_use(path: str) -> ConfigurationError:
    return ConfigurationError(
        f"Another server uses the Unix socket {path}: stop it, or choose another path with unix_socket under [server]."
    )
