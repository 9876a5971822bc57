"""Which files of a repository are chosen."""

from __future__ import annotations

import pytest

from gateway.base.errors import ConfigurationError
from gateway.config.hub_names import HubName, parse_name
from gateway.models.hub.repository import Repository, RepositoryFile
from gateway.models.hub.selection import (
    choose_gguf,
    choose_projector,
    choose_weights,
    gguf_models,
    quant_of,
)

USUAL = (
    "README.md", "imatrix.gguf", "m-BF16.gguf", "m-IQ4_XS.gguf", "m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-UD-Q4_K_XL.gguf",
    "mmproj-F16.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf",
)  # fmt: skip
SPLIT = (
    "BF16/m-BF16-00002-of-00002.gguf", "BF16/m-BF16-00001-of-00002.gguf", "Q8_0/m-00001-of-00002.gguf", "m-Q3_K_M-00001-of-00001.gguf",
)  # fmt: skip


def repository(*names: str) -> Repository:
    files = (RepositoryFile(name, len(name), "0" * 64) for name in names)
    return Repository(repo="o/m-GGUF", commit="0" * 40, files=tuple(files))


def name(text: str) -> HubName:
    found = parse_name(text)
    assert found is not None
    return found


def chosen(files: tuple[str, ...], text: str) -> list[str]:
    return [file.name for file in choose_gguf(repository(*files), name(text)).files]


@pytest.mark.parametrize(
    ("files", "text", "expected"),
    [
        (USUAL, "o/m-GGUF", ["m-Q4_K_M.gguf"]),
        (USUAL, "o/m-GGUF:q8_0", ["m-Q8_0.gguf"]),
        (USUAL, "o/m-GGUF:BF16", ["m-BF16.gguf"]),
        (USUAL, "o/m-GGUF:Q4_K_XL", ["m-UD-Q4_K_XL.gguf"]),
        (USUAL, "o/m-GGUF/m-Q2_K.gguf", ["m-Q2_K.gguf"]),
        (SPLIT, "o/m-GGUF", ["m-Q3_K_M-00001-of-00001.gguf"]),
        (SPLIT, "o/m-GGUF:BF16", ["BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"]),
        (SPLIT, "o/m-GGUF/BF16/m-BF16-00002-of-00002.gguf", ["BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"]),
        (("model.gguf",), "o/m-GGUF", ["model.gguf"]),
        (("b.gguf", "aaaaaa.gguf"), "o/m-GGUF", ["b.gguf"]),
    ],
)  # fmt: skip
def test_the_model_of_a_name(files: tuple[str, ...], text: str, expected: list[str]) -> None:
    assert chosen(files, text) == expected


@pytest.mark.parametrize(
    ("files", "text", "sentence"),
    [
        (USUAL, "o/m-GGUF:Q4_K_N", "o/m-GGUF has no Q4_K_N; did you mean o/m-GGUF:Q4_K_M? It has BF16, Q2_K, Q8_0, "),
        (SPLIT, "o/m-GGUF:Q8_0", "o/m-GGUF has no Q8_0. It has Q3_K_M, BF16."),
        (USUAL, "o/m-GGUF/m-Q4_K_L.gguf", "did you mean o/m-GGUF/m-Q4_K_M.gguf?"),
        (("a-Q4_K_M.gguf", "b-Q4_K_M.gguf"), "o/m-GGUF", "o/m-GGUF means several models: a-Q4_K_M.gguf, b-Q4_K_M.gguf; name one"),
        (("README.md",), "o/m-GGUF", "o/m-GGUF has no complete GGUF model; name another repository."),
        (("model.safetensors",), "o/m-GGUF", "it has safetensors, which vLLM and TensorRT-LLM load"),
        (("mmproj-F16.gguf",), "o/m-GGUF/mmproj-F16.gguf", "has no complete GGUF model"),
    ],
)  # fmt: skip
def test_a_name_that_fits_none_or_several(files: tuple[str, ...], text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        chosen(files, text)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("files", "model", "projector"),
    [
        (USUAL, "m-Q4_K_M.gguf", "mmproj-F16.gguf"),
        (("a-Q4_0.gguf", "mmproj-x-BF16.gguf"), "a-Q4_0.gguf", "mmproj-x-BF16.gguf"),
        (("a/m-Q4_0.gguf", "mmproj-F16.gguf", "a/mmproj-Q8_0.gguf", "b/mmproj-F16.gguf"), "a/m-Q4_0.gguf", "a/mmproj-Q8_0.gguf"),
        (("a/m-Q4_0.gguf", "ab/mmproj-F16.gguf"), "a/m-Q4_0.gguf", None),
        (("m-Q4_0.gguf",), "m-Q4_0.gguf", None),
    ],
)  # fmt: skip
def test_the_fitting_projector(files: tuple[str, ...], model: str, projector: str | None) -> None:
    whole = repository(*files)
    found = choose_projector(whole, choose_gguf(whole, name(f"o/m-GGUF/{model}")))
    assert (found and found.name) == projector


@pytest.mark.parametrize(
    ("path", "quant"),
    [
        ("Qwen3-0.6B-Q4_K_M.gguf", "Q4_K_M"),
        ("model.q5_0.gguf", "Q5_0"),
        ("UD-IQ2_XXS/m-UD-IQ2_XXS-x.gguf", "UD-IQ2_XXS"),
        ("Q6_K/m.gguf", "Q6_K"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-fp16.gguf", "FP16"),
        ("FAQ1.gguf", None),
        ("Qwen3.gguf", None),
    ],
)
def test_the_quantization_in_a_file_s_name(path: str, quant: str | None) -> None:
    assert quant_of(path) == quant


def test_incomplete_splits_are_no_models() -> None:
    assert [model.quant for model in gguf_models(repository(*SPLIT))] == ["Q3_K_M", "BF16"]


def test_the_weights_of_a_hugging_face_model() -> None:
    files = (
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "consolidated.safetensors", "config.json",
        "tokenizer.json", "chat_template.jinja", "1_Pooling/config.json", "README.md", "original/params.json", "pytorch_model.bin", "onnx/model.onnx",
    )  # fmt: skip
    found = {file.name for file in choose_weights(repository(*files))}
    assert found == {*files[:2], *files[3:7]}
    with pytest.raises(ConfigurationError, match="it has GGUF files, which llamacpp loads: Q8_0"):
        choose_weights(repository("m-Q8_0.gguf"))
    with pytest.raises(ConfigurationError, match="has no safetensors; name another"):
        choose_weights(repository("model.onnx"))
    assert len(choose_weights(repository("pytorch_model.bin", "config.json", "training.bin"))) == 2
