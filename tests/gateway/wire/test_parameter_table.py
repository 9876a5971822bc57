"""The table of parameters has those of the types, once for each API."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from gateway.wire.api_parameters import ApiParameters, Parameter
from gateway.wire.chat import ChatRequest
from gateway.wire.completions import CompletionRequest
from gateway.wire.embeddings import EmbeddingsRequest
from gateway.wire.parameter_table import (
    CHAT,
    COMPLETIONS,
    EMBEDDING,
    EMBEDDINGS,
    GENERATING,
    OTHER_SERVERS,
    PLUGINS,
    RERANK,
    RESPONSES,
    SCORE,
    SCORING,
)
from gateway.wire.parameters import SharedParameters
from gateway.wire.request import ResponseRequest
from gateway.wire.scoring import RerankRequest

APIS = (RESPONSES, CHAT, COMPLETIONS, PLUGINS, EMBEDDINGS, RERANK, SCORE)
WITHOUT_MEANING = {
    "session_id",
    "stream_interval",
    "mm_payload",
    "return_mm_kwargs",
    "custom_labels",
}
"""Parameters of vLLM and SGLang that change no answer; they are no fields."""


def fields(request: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(request)}


@pytest.mark.parametrize(
    ("api", "names"),
    [
        (RESPONSES, fields(ResponseRequest)),
        (CHAT, fields(ChatRequest) | {"functions", "function_call", "enable_thinking"}),
        (COMPLETIONS, fields(CompletionRequest) - {"prompts"} | {"prompt"}),
        (PLUGINS, fields(SharedParameters)),
    ],
    ids=lambda value: value.name if isinstance(value, ApiParameters) else "",
)
def test_the_table_has_every_parameter_of_the_types(api: ApiParameters, names: set[str]) -> None:
    assert api.known | api.ignored - WITHOUT_MEANING == names


def test_embeddings_and_pairs_have_those_of_their_types() -> None:
    assert fields(EmbeddingsRequest) - {"inputs", "several", "unknown"} <= EMBEDDINGS.known
    assert fields(RerankRequest) - {"unknown"} <= RERANK.known


@pytest.mark.parametrize("rows", [(*GENERATING, *OTHER_SERVERS), EMBEDDING, SCORING])
def test_no_parameter_has_two_rows(rows: tuple[Parameter, ...]) -> None:
    names = Counter(row.name for row in rows)
    assert max(names.values()) == 1, names.most_common(1)


@pytest.mark.parametrize("row", [*GENERATING, *OTHER_SERVERS, *EMBEDDING, *SCORING], ids=lambda row: row.name)  # fmt: skip
def test_an_api_does_one_thing_with_a_parameter(row: Parameter) -> None:
    known = {api.name for api in APIS}
    named: list[str] = []
    for names in (row.honoured, row.ignored, *(each.apis for each in row.refused)):
        named += names.split()
    assert {*named} <= known
    assert max(Counter(named).values()) == 1
    assert {*row.openai.split()} <= {*named}
