"""Models and projectors in a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.models.hub.folders import models_in_folder, projector_in_folder

SPLIT = [f"big-Q4_K_M-0000{part}-of-00003.gguf" for part in (1, 2, 3)]


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).write_bytes(b"GGUF")
    return path


@pytest.mark.parametrize(
    ("names", "models", "projector"),
    [
        ([], [], None),
        (["notes.txt"], [], None),
        (["a.gguf"], ["a.gguf"], None),
        (["a.gguf", "b.gguf"], ["a.gguf", "b.gguf"], None),
        (["a.gguf", "mmproj-F16.gguf"], ["a.gguf"], "mmproj-F16.gguf"),
        (["a.gguf", "b.gguf", "mmproj-F16.gguf"], ["a.gguf", "b.gguf"], None),
        (["a.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"], ["a.gguf"], None),
        (["mmproj-F16.gguf"], [], None),
        (SPLIT, SPLIT[:1], None),
        (SPLIT[:2], [], None),
        ([*SPLIT, "mmproj-F16.gguf"], SPLIT[:1], "mmproj-F16.gguf"),
    ],
)
def test_models_and_the_projector_of_a_folder(
    tmp_path: Path, names: list[str], models: list[str], projector: str | None
) -> None:
    place = folder(tmp_path, *names)
    assert models_in_folder(place) == [place / name for name in models]
    assert projector_in_folder(place) == (None if projector is None else place / projector)


def test_a_folder_inside_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    folder(tmp_path / "inner", "a.gguf")
    assert models_in_folder(tmp_path) == []
