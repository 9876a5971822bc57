"""The contents of a repository: the file lists of a hub, and of the local cache."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from gateway.config.hub_names import is_safe_path

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_DIGEST = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


class RepositoryFile(Struct, frozen=True):
    """A file of a repository."""

    name: str
    """Its path in the repository. Always safe to append to a folder."""
    size: int
    digest: str
    """Hash of the content, which is the name of the blob in the cache: SHA-256 for large files, for others the SHA-1
    that git computes."""


class Repository(Struct, frozen=True, kw_only=True):
    """One revision of a repository."""

    repo: str
    commit: str
    files: tuple[RepositoryFile, ...]


class _Lfs(Struct):
    sha256: str | None = None
    size: int | None = None


class _Sibling(Struct):
    rfilename: str
    size: int | None = None
    blobId: str | None = None  # noqa: N815  # the hub's name
    lfs: _Lfs | None = None

    def size_and_digest(self) -> tuple[int | None, str | None]:
        lfs = self.lfs or _Lfs()
        return self.size if lfs.size is None else lfs.size, lfs.sha256 or self.blobId


class _TreeLfs(Struct):
    oid: str | None = None
    size: int | None = None


class TreeEntry(Struct):
    """The used fields of an entry in a hub's answer to `GET /api/models/<repo>/tree/<revision>?recursive=true`."""

    path: str
    type: str = "file"
    size: int | None = None
    oid: str | None = None
    lfs: _TreeLfs | None = None

    def sibling(self) -> _Sibling:
        """The file in the form of the other list."""
        lfs = None if self.lfs is None else _Lfs(self.lfs.oid, self.lfs.size)
        return _Sibling(self.path, self.size, self.oid, lfs)


class RepositoryListing(Struct):
    """The used fields of a hub's answer to `GET /api/models/<repo>/revision/<revision>?blobs=true`."""

    sha: str
    siblings: list[_Sibling] = []
    id: str = ""

    @property
    def lacks_sizes(self) -> bool:
        """Whether there are files, but none of them has a size and a hash."""
        return self.siblings != [] and all(None in each.size_and_digest() for each in self.siblings)

    def completed(self, tree: Iterable[TreeEntry]) -> RepositoryListing:
        """The same revision with the files of `tree`."""
        files = [each.sibling() for each in tree if each.type == "file"]
        return RepositoryListing(self.sha, files, self.id)

    def repository(self, repo: str) -> Repository:
        """The revision as a `Repository`. Files without size or hash, or with unsafe paths, are left out.

        Raises ValueError if the hash of the commit is invalid.
        """
        if not _COMMIT.match(self.sha):
            raise ValueError("the hub's answer has no valid commit")
        return Repository(repo=repo, commit=self.sha, files=tuple(self._files()))

    def _files(self) -> Iterable[RepositoryFile]:
        for each in self.siblings:
            size, digest = each.size_and_digest()
            if digest is None or size is None or size < 0 or not _DIGEST.match(digest):
                continue
            if is_safe_path(each.rfilename):
                yield RepositoryFile(each.rfilename, size, digest)


def is_commit(text: str) -> bool:
    """Whether `text` is the hash of a commit."""
    return _COMMIT.match(text) is not None


def is_digest(text: str) -> bool:
    """Whether `text` is a SHA-1 or SHA-256 in hexadecimal."""
    return _DIGEST.match(text) is not None
