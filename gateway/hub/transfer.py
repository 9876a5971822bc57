"""Downloading files into the hub's cache: resumed, checked by hash, by one process at a time.

The layout of the cache is that of `huggingface_hub`. Its own download function is not used because it starts an
interrupted file again from its beginning, and does not check hashes.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gateway.errors import ConfigurationError
from gateway.hub.client import Hub, HubAnswerInvalid, HubUnreachable
from gateway.hub.progress import DownloadProgress, human_size, progress
from gateway.hub.repository import Repository, RepositoryFile

if TYPE_CHECKING:
    from hashlib import _Hash

logger = logging.getLogger("gateway.hub")

CHUNK = 256 * 1024
ATTEMPTS = 5
"""How often a transfer that brings no new byte is tried."""
WAIT_SECONDS = 0.5
"""Time before the second attempt; doubled for each further one."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DownloadStopped(Exception):
    """The caller has set its event."""


class _HashMismatch(Exception):
    """The content is not what the hub's list says."""


def storage_folder(hub: Hub, repo: str) -> Path:
    """The folder of a repository in the cache."""
    return hub.cache / ("models--" + repo.replace("/", "--"))


def download(
    hub: Hub,
    repository: Repository,
    files: Sequence[RepositoryFile],
    what: str,
    stop: threading.Event | None = None,
) -> list[Path]:
    """Download what is missing of `files`. Returns the paths of all in the cache.

    Blocks. Progress is shown as that of `what`. Raises `HubUnreachable`, `HubRefusal`, `HubAnswerInvalid`;
    `ConfigurationError` if the disk is full or a file's content does not have its hash; `DownloadStopped` once `stop` is
    set. An incomplete file is kept, and the next call resumes it.
    """
    job = _Job(hub, repository, stop or threading.Event())
    total = sum(file.size for file in files)
    try:
        left = missing_bytes(hub, repository, files)
        if left:
            job.check_space(left)
            with progress(f"downloading {what}", total, total - left) as shown:
                for file in files:
                    job.fetch(file, shown)
        paths = [job.link(file) for file in files]
        job.set_ref()
    except OSError as error:
        raise ConfigurationError(_disk_sentence(error, what, hub)) from error
    return paths


def missing_bytes(hub: Hub, repository: Repository, files: Sequence[RepositoryFile]) -> int:
    """How many bytes of `files` would have to be downloaded."""
    job = _Job(hub, repository, threading.Event())
    return sum(file.size - job.present_bytes(file) for file in files)


class _Job:
    """A download of files of one revision."""

    def __init__(self, hub: Hub, repository: Repository, stop: threading.Event) -> None:
        self._hub = hub
        self._repository = repository
        self._stop = stop
        self._storage = storage_folder(hub, repository.repo)
        self._blobs = self._storage / "blobs"

    def present_bytes(self, file: RepositoryFile) -> int:
        """How many bytes of a file are there already."""
        for path in (self._blob(file), self._partial(file)):
            size = _size(path)
            if size is not None and size <= file.size:
                return size
        return 0

    def check_space(self, needed: int) -> None:
        """Raise `ConfigurationError` if the disk has less than `needed` bytes."""
        self._blobs.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._blobs).free
        if free < needed:
            raise ConfigurationError(
                f"{self._repository.repo} needs {human_size(needed)} more in {self._hub.cache}, which has "
                f"{human_size(free)} free: make room (`gateway models --cached`, `gateway rm`), or set HF_HOME to a folder "
                "on another disk."
            )

    def fetch(self, file: RepositoryFile, shown: DownloadProgress) -> None:
        """Download a file into its blob, unless it is there."""
        if _size(self._blob(file)) == file.size:
            return
        before = self.present_bytes(file)
        with self._lock(file):
            if _size(self._blob(file)) == file.size:  # another process was faster
                shown.advance(file.size - before)
                return
            with self._partial(file).open("ab+") as partial:
                shown.advance(partial.seek(0, os.SEEK_END) - before)
                transfer = _Transfer(self._hub, self._repository, file, partial, shown, self._stop)
                try:
                    transfer.run()
                except _HashMismatch as error:
                    self._partial(file).unlink(missing_ok=True)
                    raise ConfigurationError(
                        f"{file.name} of {self._repository.repo} arrived with another hash than {self._hub.endpoint} "
                        "states, and was deleted: try again; if it happens again, a proxy changes the content, or the hub "
                        "is broken."
                    ) from error
            self._partial(file).replace(self._blob(file))

    def link(self, file: RepositoryFile) -> Path:
        """Put a downloaded file into the snapshot of its revision. Returns its path there."""
        path = self._storage / "snapshots" / self._repository.commit / file.name
        target = os.path.relpath(self._blob(file), path.parent)
        if not (path.is_symlink() and os.readlink(path) == target):
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{uuid.uuid4().hex[:8]}.tmp")
            new.symlink_to(target)
            new.replace(path)
        return path

    def set_ref(self) -> None:
        """Make this revision the cached `main`."""
        ref = self._storage / "refs" / "main"
        ref.parent.mkdir(parents=True, exist_ok=True)
        new = ref.with_name(f"main.{uuid.uuid4().hex[:8]}.tmp")
        new.write_text(self._repository.commit)
        new.replace(ref)

    def _blob(self, file: RepositoryFile) -> Path:
        return self._blobs / file.digest

    def _partial(self, file: RepositoryFile) -> Path:
        return self._blobs / f"{file.digest}.incomplete"

    @contextmanager
    def _lock(self, file: RepositoryFile) -> Iterator[None]:
        """The lock under which every library of the hub writes this blob."""
        from filelock import Timeout
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # documented

        path = self._hub.cache / ".locks" / self._storage.name / f"{file.digest}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting = False
        while True:
            with suppress(Timeout), WeakFileLock(path, timeout=0.5):
                yield
                return
            _raise_if_stopped(self._stop)
            if not waiting:
                waiting = True
                logger.info("%s: another process downloads it; waiting", file.name)


class _Transfer:
    """One file, in as many requests as it takes."""

    def __init__(
        self,
        hub: Hub,
        repository: Repository,
        file: RepositoryFile,
        partial: IO[bytes],
        shown: DownloadProgress,
        stop: threading.Event,
    ) -> None:
        self._hub = hub
        self._url = hub.file_url(repository, file.name)
        self._file = file
        self._partial = partial
        self._shown = shown
        self._stop = stop
        self._hash = _hash_for(file)
        self._at = 0
        """Length of the verified-so-far content."""

    def run(self) -> None:
        """Complete the file. Raises `_HashMismatch` if all of it is there and it is another one."""
        self._use_existing_bytes()
        resumed = self._at > 0
        self._complete()
        if self._hash.hexdigest() != self._file.digest and resumed:
            # What an earlier download has left may be damaged.
            self._restart()
            self._complete()
        self._partial.flush()
        os.fsync(self._partial.fileno())
        if self._hash.hexdigest() != self._file.digest:
            raise _HashMismatch

    def _use_existing_bytes(self) -> None:
        self._partial.seek(0)
        while chunk := self._partial.read(8 * CHUNK):
            _raise_if_stopped(self._stop)
            self._hash.update(chunk)
            self._at += len(chunk)
        if self._at > self._file.size:
            self._restart()

    def _complete(self) -> None:
        failures = 0
        while self._at < self._file.size:
            before = self._at
            try:
                self._request()
                failure = HubUnreachable("the connection ended early")
            except HubUnreachable as error:
                failure = error
            if self._at == self._file.size:
                return
            failures = 1 if self._at > before else failures + 1
            if failures >= ATTEMPTS or (failure.retry_after is not None and failure.wait is None):
                raise failure
            logger.info("%s: %s; trying again", self._file.name, failure)
            if self._stop.wait(max(WAIT_SECONDS * 2 ** (failures - 1), failure.wait or 0.0)):
                raise DownloadStopped

    def _request(self) -> None:
        with self._hub.stream(self._url, offset=self._at) as response:
            start, total = _range_of(response.status_code, response.headers.get)
            if total is not None and total != self._file.size:
                raise HubAnswerInvalid(f"{self._file.name} has another size than its list says")
            if start != self._at:
                if start != 0:
                    raise HubAnswerInvalid("it answers with another range than asked for")
                self._restart()
            for chunk in response.iter_raw(CHUNK):
                _raise_if_stopped(self._stop)
                if self._at + len(chunk) > self._file.size:
                    raise HubAnswerInvalid(f"{self._file.name} is longer than its list says")
                self._partial.write(chunk)
                self._hash.update(chunk)
                self._at += len(chunk)
                self._shown.advance(len(chunk))

    def _restart(self) -> None:
        self._shown.advance(-self._at)
        self._partial.truncate(0)
        self._partial.seek(0)
        self._hash = _hash_for(self._file)
        self._at = 0


def _range_of(status: int, header: Callable[[str], str | None]) -> tuple[int, int | None]:
    """The first byte of an answer's content, and the length of the whole file if it is stated."""
    if status == 200:
        return 0, _number(header("content-length") or "")
    unit, _, span = (header("content-range") or "").partition(" ")
    first = _number(span.partition("-")[0])
    if unit != "bytes" or first is None:
        raise HubAnswerInvalid("it answers with an invalid range")
    return first, _number(span.rpartition("/")[2])


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _hash_for(file: RepositoryFile) -> _Hash:
    """The hash function of a file's digest, with what git puts before a small file's content."""
    if len(file.digest) == 64:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)


def _raise_if_stopped(stop: threading.Event) -> None:
    if stop.is_set():
        raise DownloadStopped


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _disk_sentence(error: OSError, what: str, hub: Hub) -> str:
    if error.errno in _FULL:
        return (
            f"There is no room for {what} in {hub.cache} ({error.strerror}): make room (`gateway models --cached`, "
            "`gateway rm`), or set HF_HOME to a folder on another disk; the download then goes on where it stopped."
        )
    return f"{what} cannot be kept in {hub.cache}: {error.strerror or error}. Set HF_HOME to a folder that can be written."
