"""Which texts are names of a hub, and what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.hub_names import HubName, is_safe_path, parse_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen3-8B", HubName("Qwen/Qwen3-8B")),
        ("hf:Qwen/Qwen3-8B", HubName("Qwen/Qwen3-8B", explicit=True)),
        ("hf:gpt2", HubName("gpt2", explicit=True)),
        ("unsloth/Qwen3-0.6B-GGUF", HubName("unsloth/Qwen3-0.6B-GGUF")),
        ("unsloth/Qwen3-0.6B-GGUF:Q4_K_M", HubName("unsloth/Qwen3-0.6B-GGUF", "Q4_K_M")),
        ("o/r-GGUF/r-Q8_0.gguf", HubName("o/r-GGUF", file="r-Q8_0.gguf")),
        ("hf:o/r/UD/r-00001-of-2.gguf", HubName("o/r", file="UD/r-00001-of-2.gguf", explicit=True)),
        ("hf:o/r.gguf", HubName("o/r.gguf", explicit=True)),
    ],
)
def test_a_name(text: str, name: HubName) -> None:
    assert parse_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "", "gpt2", "tiny", "hf:", "/a/b", "./a/b", "../a/b", "~/a/b", "a//b", "a/b/", "a/b/c", "a/b/c.bin", "models/m.gguf",
        "a/b:", "a/b:Q4:Q5", "a/b:Q4/c.gguf", "a/b/../c.gguf", "a/b/.gguf/../x.gguf", "a/..", "a/b--c", "a/b.git", "a/-b",
        "a b/c", "a/b\n", "hf:a/b/../../c.gguf", "hf:../b", "ä/b", "http://a/b", "hf:https://a/b", "a/b/c\\d.gguf",
        "a/b/c\x1b.gguf", "a/" + "b" * 97,
    ],
)  # fmt: skip
def test_no_name(text: str) -> None:
    assert parse_name(text) is None


@given(st.text())
def test_any_text_is_a_safe_name_or_none(text: str) -> None:
    name = parse_name(text) or parse_name(f"hf:{text}")
    if name is not None:
        assert ".." not in name.repo
        assert name.repo.count("/") <= 1
        assert name.file is None or is_safe_path(name.file)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("unsloth/Qwen3-0.6B-GGUF:Q4_K_M", "Qwen3-0.6B"),
        ("o/phi-3-gguf", "phi-3"),
        ("o/r-GGUF/sub/r-Q8_0.gguf", "r-Q8_0"),
        ("o/GGUF", "GGUF"),
    ],
)
def test_the_name_under_which_a_model_is_served(text: str, short: str) -> None:
    name = parse_name(text)
    assert name is not None
    assert name.short == short
    assert str(name) == text


@pytest.mark.parametrize(
    ("text", "gguf"),
    [("o/r-GGUF", True), ("o/r-gguf", True), ("o/r:Q4_0", True), ("o/r/a.gguf", True), ("o/r", False), ("gguf-org/r", False)],
)  # fmt: skip
def test_whether_a_name_says_gguf(text: str, gguf: bool) -> None:
    name = parse_name(text)
    assert name is not None
    assert name.names_gguf is gguf
