"""The local cache of the hub's files: listing its models, and removing them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.config.hub_names import HubName, parse_name
from gateway.models.hub.client import Hub
from gateway.models.hub.repository import Repository, RepositoryFile, is_commit, is_digest
from gateway.models.hub.selection import choose_gguf, gguf_models, has_weights, is_projector
from gateway.models.hub.transfer import storage_folder

_PREFIX = "models--"


class CachedModel(Struct, frozen=True, kw_only=True):
    """A model in the cache."""

    name: str
    """The name by which `gateway serve` finds it."""
    kind: str
    """`gguf`, `safetensors`, `incomplete` (parts of an interrupted download) or `other`."""
    size: int
    """Bytes on the disk. Files that several models of a repository share, such as projectors, count for each model."""
    used: float
    """Unix time of the last use of its files, as recorded by the file system."""


def cached_repository(hub: Hub, repo: str) -> Repository | None:
    """The cached files of a repository's newest revision; None if there are none."""
    storage = storage_folder(hub, repo)
    commit = _current_commit(storage)
    if commit is None:
        return None
    return Repository(repo=repo, commit=commit, files=tuple(_files(storage, commit)))


def cached_path(hub: Hub, repository: Repository, file: RepositoryFile) -> Path:
    """The path of a file of a cached revision."""
    return storage_folder(hub, repository.repo) / "snapshots" / repository.commit / file.name


def cached_repositories(hub: Hub) -> list[str]:
    """The names of all repositories in the cache."""
    with suppress(OSError):
        return sorted(
            folder.name.removeprefix(_PREFIX).replace("--", "/")
            for folder in hub.cache.iterdir()
            if folder.name.startswith(_PREFIX) and folder.is_dir()
        )
    return []


def cached_models(hub: Hub) -> list[CachedModel]:
    """All models in the cache."""
    return [model for repo in cached_repositories(hub) for model in _models(hub, repo)]


def remove(hub: Hub, name: HubName) -> int:
    """Remove a repository, or one of its GGUF models, from the cache. Returns the number of bytes that this has freed.

    Raises `ConfigurationError` if it is not in the cache.
    """
    storage = storage_folder(hub, name.repo)
    if not storage.is_dir():
        found = cached_repositories(hub)
        have = f"it has {', '.join(found)}" if found else "it is empty"
        raise ConfigurationError(f"{name.repo} is not in the cache {hub.cache}; {have}.")
    before = _disk_size(storage)
    try:
        if name.quant is None and name.file is None:
            _remove_all(hub, storage)
            return before
        _remove_model(hub, storage, name)
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be removed: {error.strerror or error}.") from error
    return before - _disk_size(storage)


def _remove_model(hub: Hub, storage: Path, name: HubName) -> None:
    repository = cached_repository(hub, name.repo)
    if repository is None:
        raise ConfigurationError(
            f"{name.repo} has only parts of a download in the cache; remove all with `gateway rm {name.repo}`."
        )
    model = choose_gguf(repository, name)
    gone = {file.name for file in model.files}
    if len(gguf_models(repository)) == 1:
        gone |= {file.name for file in repository.files if is_projector(file.name)}
    for commit in _folders(storage / "snapshots"):
        for path in gone:
            (commit / path).unlink(missing_ok=True)
    used = {
        os.path.realpath(Path(folder, file))
        for folder, _, files in os.walk(storage / "snapshots")
        for file in files
    }
    for blob in (storage / "blobs").iterdir():
        if is_digest(blob.name) and os.path.realpath(blob) not in used:
            blob.unlink(missing_ok=True)
    if not used:
        _remove_all(hub, storage)


def _remove_all(hub: Hub, storage: Path) -> None:
    shutil.rmtree(storage)
    shutil.rmtree(hub.cache / ".locks" / storage.name, ignore_errors=True)


def _models(hub: Hub, repo: str) -> Iterator[CachedModel]:
    storage = storage_folder(hub, repo)
    repository = cached_repository(hub, repo)
    if parse_name(f"hf:{repo}") is None:
        return
    ggufs = gguf_models(repository) if repository is not None else []
    projectors = (
        sum(file.size for file in repository.files if is_projector(file.name)) if repository else 0
    )
    quants = [model.quant for model in ggufs]
    for model in ggufs:
        unique = model.quant is not None and quants.count(model.quant) == 1
        yield CachedModel(
            name=f"{repo}:{model.quant}" if unique else f"{repo}/{model.name}",
            kind="gguf",
            size=model.size + projectors,
            used=_last_used(storage, [file.digest for file in model.files]),
        )
    if repository is not None and has_weights(repository):
        digests = [file.digest for file in repository.files]
        size = sum(file.size for file in repository.files)
        yield CachedModel(
            name=repo, kind="safetensors", size=size, used=_last_used(storage, digests)
        )
    elif repository is not None and not ggufs:
        size = _disk_size(storage)
        yield CachedModel(name=repo, kind="other", size=size, used=_last_used(storage, []))
    partial = sum(path.stat().st_size for path in (storage / "blobs").glob("*.incomplete"))
    if partial:
        yield CachedModel(name=repo, kind="incomplete", size=partial, used=_last_used(storage, []))


def _current_commit(storage: Path) -> str | None:
    """The commit of `main` or, if there is none, of the newest snapshot."""
    with suppress(OSError, UnicodeDecodeError):
        commit = (storage / "refs" / "main").read_text().strip()
        if is_commit(commit) and (storage / "snapshots" / commit).is_dir():
            return commit
    snapshots = [path for path in _folders(storage / "snapshots") if is_commit(path.name)]
    newest = max(snapshots, key=lambda path: path.stat().st_mtime, default=None)
    return newest.name if newest is not None else None


def _files(storage: Path, commit: str) -> Iterator[RepositoryFile]:
    root = storage / "snapshots" / commit
    for folder, _, names in os.walk(root):
        for each in names:
            path = Path(folder, each)
            with suppress(OSError):  # a link to a missing blob
                name = path.relative_to(root).as_posix()
                yield RepositoryFile(name, path.stat().st_size, path.resolve().name)


def _folders(parent: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in parent.iterdir() if path.is_dir()]
    return []


def _last_used(storage: Path, digests: list[str]) -> float:
    times = [storage.stat().st_mtime]
    for digest in digests:
        with suppress(OSError):
            stat = (storage / "blobs" / digest).stat()
            times.append(max(stat.st_atime, stat.st_mtime))
    return max(times)


def _disk_size(storage: Path) -> int:
    """The total size of all blobs in bytes."""
    with suppress(OSError):
        return sum(path.lstat().st_size for path in (storage / "blobs").iterdir())
    return 0
