"""Names of models on a hub: `hf:owner/repo`, `owner/repo-GGUF:Q4_K_M`, `owner/repo-GGUF/file.gguf`."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

PREFIX = "hf:"
"""Marks a name of the hub, even if a file or folder of that name exists here."""
LONGEST_PART = 96
"""Maximum length of an owner's and of a repository's name, as on the hub."""

_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?\Z", re.ASCII)
_QUANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z", re.ASCII)


class HubName(Struct, frozen=True):
    """A repository on a hub, or one model in it."""

    repo: str
    """`owner/repo`; without an owner for the oldest repositories, such as `gpt2`."""
    quant: str | None = None
    """The quantization of a GGUF model, such as `Q4_K_M`."""
    file: str | None = None
    """Path of a GGUF file in the repository."""
    explicit: bool = False
    """Whether the name has the prefix `hf:`."""

    def __str__(self) -> str:
        if self.file is not None:
            return f"{self.repo}/{self.file}"
        return self.repo if self.quant is None else f"{self.repo}:{self.quant}"

    @property
    def names_gguf(self) -> bool:
        """Whether the name alone tells that the model is in GGUF format."""
        return (
            self.quant is not None or self.file is not None or "gguf" in self.repo.rpartition("/")[2].lower()
        )  # fmt: skip

    @property
    def short(self) -> str:
        """The name under which the model is served by default."""
        if self.file is not None:
            return self.file.rpartition("/")[2].removesuffix(".gguf")
        own = self.repo.rpartition("/")[2]
        return re.sub(r"(?i)[-_.]gguf\Z", "", own) or own


def parse_name(text: str) -> HubName | None:
    """Parse `text` as a hub name; None if it is not one. Does not check whether a file or folder of that name exists
    here."""
    explicit = text.startswith(PREFIX)
    rest = text.removeprefix(PREFIX).removeprefix("//") if explicit else text
    repo, file = _split(rest)
    if file is not None and not (file.endswith(".gguf") and is_safe_path(file)):
        return None
    repo, colon, quant = repo.partition(":")
    if colon and (file is not None or not _QUANT.match(quant)):
        return None
    parts = repo.split("/")
    if not all(map(_is_part, parts)):
        return None
    if len(parts) == 1 and (not explicit or colon):
        return None
    if len(parts) == 2 and parts[1].endswith(".gguf") and not explicit:
        return None  # a path to a file
    return HubName(repo, quant or None, file, explicit)


def hub_name_of(path: str) -> HubName | None:
    """Parse a configured `path` as a hub name. None if it is not one, or if it has no prefix and a file or folder of
    that name exists here."""
    name = parse_name(path)
    if name is None or (not name.explicit and Path(path).expanduser().exists()):
        return None
    return name


def is_safe_path(path: str) -> bool:
    """Whether `path`, from a hub, is relative, stays in its folder, and is printable."""
    parts = path.split("/")
    return (
        path.isprintable()
        and "\\" not in path
        and len(path) <= 1024
        and all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in parts)
    )


def _split(text: str) -> tuple[str, str | None]:
    """The repository, and the path of a file in it."""
    parts = text.split("/", 2)
    return ("/".join(parts[:2]), parts[2]) if len(parts) == 3 else (text, None)


def _is_part(part: str) -> bool:
    return (
        len(part) <= LONGEST_PART
        and _PART.match(part) is not None
        and "--" not in part
        and ".." not in part
        and not part.endswith(".git")
    )
