"""Finding models in GGUF format in a local folder, by the same rules as in a repository."""

from __future__ import annotations

from pathlib import Path

from gateway.models.hub.repository import Repository, RepositoryFile
from gateway.models.hub.selection import gguf_models, is_projector


def models_in_folder(folder: Path) -> list[Path]:
    """The complete models in `folder`: the file of each, or the first part if it is split."""
    return sorted(folder / model.name for model in gguf_models(_contents(folder)))


def projector_in_folder(folder: Path) -> Path | None:
    """The multimodal projector in `folder`. None unless there are exactly one projector and one model: otherwise it may
    belong to another model."""
    found = [file.name for file in _contents(folder).files if is_projector(file.name)]
    return folder / found[0] if len(found) == 1 and len(models_in_folder(folder)) == 1 else None


def _contents(folder: Path) -> Repository:
    files = [RepositoryFile(each.name, each.stat().st_size, "") for each in folder.glob("*.gguf")]
    return Repository(repo=str(folder), commit="", files=tuple(files))
