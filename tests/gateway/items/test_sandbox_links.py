"""Links to files in containers: found whatever the text was cut into, and nothing of the text is changed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.items.sandbox_links import Piece, SandboxLink, SandboxLinkReader, by_path
from gateway.plugins.protocols import ContainerFileSource

PATHS = [
    "/mnt/data/a.csv",
    "/mnt/data/a.csv.gz",
    "/mnt/data/a b.csv",
    "/mnt/data/é.png",
    "/mnt/data/report (1).md",
    "/mnt/data/sandbox:",
]
FILES = by_path(
    ContainerFileSource(path=path, container_id="cntr_1", file_id=path) for path in PATHS
)


def read(*cuts: str) -> list[Piece]:
    """The pieces, joined where they are text."""
    reader = SandboxLinkReader(FILES)
    pieces = [piece for cut in cuts for piece in reader.feed(cut)] + reader.finish()
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def links(*cuts: str) -> list[tuple[str, str]]:
    return [(each.text, each.source.path) for each in read(*cuts) if isinstance(each, SandboxLink)]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[a](sandbox:/mnt/data/a.csv)", "/mnt/data/a.csv"),
        ("at sandbox:/mnt/data/a.csv", "/mnt/data/a.csv"),
        ("at sandbox:/mnt/data/a.csv.", "/mnt/data/a.csv"),
        ("at sandbox:/mnt/data/a.csv. Then", "/mnt/data/a.csv"),
        ("[a](sandbox:/mnt/data/a.csv.gz)", "/mnt/data/a.csv.gz"),
        ("[a](sandbox:/mnt/data/a b.csv)", "/mnt/data/a b.csv"),
        ("[a](sandbox:/mnt/data/a%20b.csv)", "/mnt/data/a b.csv"),
        ("[a](sandbox:/mnt/data/%C3%A9.png)", "/mnt/data/é.png"),
        ("[a](sandbox:/mnt/data/é.png)", "/mnt/data/é.png"),
        ("[a](sandbox:/mnt/data/report (1).md)", "/mnt/data/report (1).md"),
        ("sandbox:sandbox:/mnt/data/a.csv", "/mnt/data/a.csv"),
    ],
)
def test_the_target_of_a_link_is_the_file_of_its_path(text: str, path: str) -> None:
    [(target, found)] = links(text)
    assert found == path
    assert target in text
    assert target.startswith("sandbox:/mnt/data/")


@pytest.mark.parametrize(
    "text",
    [
        "sandbox:/mnt/data/b.csv",
        "sandbox:/mnt/data/a.csvx",
        "sandbox:/mnt/data/a.csv.bz2",
        "sandbox:/mnt/data/a.csv/b",
        "sandbox:/mnt/data/a.cs",
        "/mnt/data/a.csv",
        "sandbox:",
        "sandbo",
        "SANDBOX:/mnt/data/a.csv",
    ],
)
def test_what_names_no_file_is_text(text: str) -> None:
    assert read(text) == [text]


FRAGMENTS = st.sampled_from(
    [*PATHS, "sandbox:", "sandbox", "s", "a%20b.csv", "/mnt/data/", "(", ")", ".", " ", "é", "gz", "%", "x"]
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=12), st.data())
def test_how_the_text_is_cut_does_not_matter(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    marks = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    cuts = [text[a:b] for a, b in pairwise([0, *marks, len(text)])]
    pieces = read(*cuts)
    assert pieces == read(text)
    assert "".join(each if isinstance(each, str) else each.text for each in pieces) == text


@given(st.lists(FRAGMENTS, max_size=12))
def test_what_is_held_back_is_bounded(fragments: list[str]) -> None:
    reader = SandboxLinkReader(FILES)
    told = 0
    longest = max(map(len, PATHS)) * 3 + len("sandbox:") + 2
    for fed, character in enumerate("".join(fragments), start=1):
        told += sum(
            len(each) if isinstance(each, str) else len(each.text)
            for each in reader.feed(character)
        )
        assert fed - told <= longest


def test_without_files_nothing_is_held_back() -> None:
    reader = SandboxLinkReader({})
    assert reader.feed("see sandbox:") == ["see sandbox:"]
    assert reader.finish() == []
