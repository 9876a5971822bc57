"""Checks of `/v1/embeddings`."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

from gateway_conform.client import Json
from gateway_conform.outcome import CheckSkipped, require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.types import validate


def _embed(server: ServerUnderTest, **fields: Any) -> Json:
    body = {"model": server.embedding_model, "input": "Hello", **fields}
    answer = server.client.post("/embeddings", body)
    if answer.status in (400, 404, 405, 501):
        raise CheckSkipped("the model does not embed; name one that does with --embedding-model")
    return answer.expect()


@check("embeddings", "texts are embedded, in order, with usage")
def plain(server: ServerUnderTest) -> None:
    made = _embed(server, input=["Hello", "The weather is fine."])
    require([each["index"] for each in made["data"]] == [0, 1], "the vectors are not 0 and 1")
    sizes = {len(each["embedding"]) for each in made["data"]}
    require(len(sizes) == 1, f"the vectors have the sizes {sizes}")
    require(made["usage"]["prompt_tokens"] > 0, "usage has no tokens")


@check("embeddings", "the answer is valid by the types of OpenAI's SDK")
def types(server: ServerUnderTest) -> None:
    validate("openai.types.CreateEmbeddingResponse", _embed(server))


@check("embeddings", "base64 gives the same numbers")
def encoded(server: ServerUnderTest) -> None:
    vector = _embed(server)["data"][0]["embedding"]
    text = _embed(server, encoding_format="base64")["data"][0]["embedding"]
    require(isinstance(text, str), "the vector is not base64")
    data = base64.b64decode(text)
    other = struct.unpack(f"<{len(data) // 4}f", data)
    require(len(other) == len(vector), f"{len(other)} numbers, not {len(vector)}")
    same = all(
        math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-4) for a, b in zip(vector, other, strict=True)
    )
    require(same, "the numbers differ")
