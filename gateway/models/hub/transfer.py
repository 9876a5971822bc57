"""Downloading files into the hub's cache. Downloads are resumed, checked by hash, and made by one process at a time.

The cache has the layout of `huggingface_hub`. The download function of that library is not used because it downloads an
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

from gateway.base.errors import ConfigurationError
from gateway.models.hub.client import Hub, HubAnswerInvalid, HubUnreachable
from gateway.models.hub.progress import DownloadProgress, human_size, progress
from gateway.models.hub.repository import Repository, RepositoryFile

if TYPE_CHECKING:
    from hashlib import _Hash

logger = logging.getLogger("gateway.models.hub")

CHUNK = 256 * 1024
ATTEMPTS = 5
"""Number of attempts without a new byte after which a transfer fails."""
WAIT_SECONDS = 0.5
"""Time in seconds before the second attempt. It doubles with each further attempt."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DownloadStopped(Exception):
    """The download has ended because the caller has set its event."""


class _HashMismatch(Exception):
    """The content does not have the hash in the hub's file list."""


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
    """Download those of `files` that are missing in the cache. Returns the paths of all of them in the cache.

    Blocks. `what` names the download where progress is shown. Raises `HubUnreachable`, `HubRefusal` or
    `HubAnswerInvalid`; `ConfigurationError` if the disk is full or a file's content does not have its hash;
    `DownloadStopped` once `stop` is set. An incomplete file is kept, and the next call resumes its download.
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
    """The number of bytes of `files` that must be downloaded."""
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
        """The number of bytes of a file that are already downloaded."""
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
            if _size(self._blob(file)) == file.size:  # another process has downloaded it
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
        """Link a downloaded file into the snapshot of its revision. Returns its path there."""
        path = self._storage / "snapshots" / self._repository.commit / file.name
        target = os.path.relpath(self._blob(file), path.parent)
        if not (path.is_symlink() and os.readlink(path) == target):
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{uuid.uuid4().hex[:8]}.tmp")
            new.symlink_to(target)
            new.replace(path)
        return path

    def set_ref(self) -> None:
        """Record in the cache that this revision is `main`."""
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
        """Hold the lock of this blob, which all libraries of the hub respect."""
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
    """The download of one file, by as many requests as necessary."""

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
        """Number of bytes that are in the partial file and in the hash so far."""

    def run(self) -> None:
        """Complete the file. Raises `_HashMismatch` if the complete file does not have its hash."""
        self._use_existing_bytes()
        resumed = self._at > 0
        self._complete()
        if self._hash.hexdigest() != self._file.digest and resumed:
            # The part left by an earlier download may be damaged.
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
    """The position of an answer's content in the file, and the length of the whole file if the answer states it."""
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
    """The hash function of a file's digest. For small files, it already contains git's header, which precedes the
    content."""
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
