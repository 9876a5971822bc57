"""A reranking model orders the results of searches."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.reranking import Reranking
from gateway_file_search.search import Hit
from tests.plugins.file_search.filled_stores import filled

TEXTS = {
    "many.md": b"tower tower tower bridge and a house",
    "high.md": b"the tower has height",
    "other.md": b"water flows downhill",
}


def configured(
    folder: Path, *, rerank: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **tool: Any
) -> dict[str, Any]:  # fmt: skip
    """A gateway with a model `order`, whose scripted keys are `rerank`, that file_search uses."""
    scripted = {"task": "rerank", "synonyms": [["tall", "height"]], **(rerank or {})}
    return {
        "models": {
            "m": {"engine": "scripted"},
            "order": {"engine": "scripted", "scripted": scripted, **(model or {})},
        },
        "tools": {"file_search": {"reranker": "order", **tool}},
        "resources": {"files": {"path": str(folder)}},
    }


def hits(client: Any, store: str, query: str | list[str], **more: Any) -> list[tuple[str, float]]:
    body = {"query": query, **more}
    answer = client.post(f"/vector_stores/{store}/search", body=body, cast_to=object)
    return [(hit["filename"], hit["score"]) for hit in answer["data"]]


def names(found: list[tuple[str, float]]) -> list[str]:
    return [name for name, _ in found]


def test_results_are_ordered_by_the_model(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    with gateway_server(configured(tmp_path)).client() as client:
        store = filled(client, TEXTS)
        unordered = {"ranker": "none"}
        assert names(hits(client, store, "tall tower", ranking_options=unordered))[0] == "many.md"
        found = hits(client, store, "tall tower")
        assert names(found) == ["high.md", "many.md"]
        assert [score for _, score in found] == sorted((each for _, each in found), reverse=True)
        assert all(0 <= score <= 1 for _, score in found)
        assert names(hits(client, store, "tall tower", max_num_results=1)) == ["high.md"]
        # The threshold is one of the model's scores.
        least = {"score_threshold": (found[0][1] + found[1][1]) / 2}
        assert names(hits(client, store, "tall tower", ranking_options=least)) == ["high.md"]
        assert set(names(hits(client, store, ["tall tower", "water"]))) == set(TEXTS)


def test_a_model_gets_results_in_that_order(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    search = {"call": {"name": "file_search", "arguments": {"queries": ["tall tower"]}}}
    config = configured(tmp_path)
    config["models"]["m"]["scripted"] = {"rules": [{"when": "find it", "pieces": [search]}]}
    with gateway_server(config).client() as client:
        store = filled(client, TEXTS)
        response = client.responses.create(
            model="m",
            input="find it",
            tools=[{"type": "file_search", "vector_store_ids": [store]}],
            include=["file_search_call.results"],
            max_tool_calls=1,
        )
        assert [each.filename for each in response.output[0].results] == ["high.md", "many.md"]


@pytest.mark.slow
def test_more_results_are_ordered_than_are_wanted(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    texts = {
        f"{number}.md": b"tower " * (9 - number) + b"bridge house water roof door"
        for number in range(9)
    }
    texts["high.md"] = b"height and tower height, height of a tower"
    for candidates in (30, 1):
        config = configured(tmp_path / str(candidates), reranker_candidates=candidates)
        with gateway_server(config).client() as client:
            store = filled(client, texts)
            found = names(hits(client, store, "tall tower", max_num_results=1))
            unordered = {"ranker": "none"}
            searched = names(hits(client, store, "tall tower", ranking_options=unordered))
            assert searched[0] != "high.md"
            assert found == (["high.md"] if candidates > 1 else searched[:1])


def test_passages_that_are_too_long_for_the_model_are_scored_in_parts(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    config = configured(tmp_path, model={"max_model_len": 48})
    long = b"the water flows downhill and so on. " * 30
    with gateway_server(config).client() as client:
        store = filled(
            client,
            {
                "long.md": long + b"tall tower.",
                "short.md": b"a tower so far away from here that no one goes",
            },
        )
        assert names(hits(client, store, "tall tower")) == ["long.md", "short.md"]


def test_results_stay_as_they_are_if_the_model_fails(
    gateway_server: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules: list[dict[str, Any]] = [
        {"when": "wrong", "error": {"status": 500, "message": "Out of order."}},
        {"when": "slow", "delay_ms": 60_000},
    ]
    config = configured(tmp_path, rerank={"rules": rules}, reranker_time=2.0)
    with gateway_server(config).client() as client:
        for text, reason in (("wrong", "Out of order."), ("slow", "longer than 2 seconds")):
            store = filled(client, {"a.md": f"tower {text}".encode(), "b.md": b"tower"})
            caplog.clear()
            plain = hits(client, store, "tower", ranking_options={"ranker": "none"})
            assert hits(client, store, "tower") == plain
            [line] = [each for each in caplog.messages if "could not order" in each]
            assert "'order'" in line
            assert reason in line


def test_a_model_that_does_not_rerank_stops_the_start(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("m", "x"):
        with pytest.raises(ConfigurationError, match=re.escape("tools.file_search.reranker: ")):
            gateway_server(configured(tmp_path, reranker=name))


class Model:
    """A reranker with given scores."""

    model = "given"

    def __init__(self, *scores: list[float]) -> None:
        self._scores = list(scores)

    def reranker(self, model: str) -> Model:
        return self

    def embedder(self, model: str) -> Any:
        raise NotImplementedError

    async def scores(self, query: str, documents: Any) -> list[float]:
        return self._scores.pop(0)


@pytest.mark.anyio
async def test_logits_become_shares() -> None:
    reranking = Reranking(FileSearchConfig(reranker="given"))
    hits = [Hit(file_id=str(n), filename="", score=0.0, attributes={}, text="x") for n in range(2)]
    assert await reranking.ordered(["q"], hits) is None
    reranking.use(Model([0.25, 0.75], [-2.0, 800.0], [0.0, -800.0]))
    shares = []
    for _ in range(3):
        found = await reranking.ordered(["q"], hits)
        assert found is not None
        shares.append({hit.file_id: hit.score for hit in found})
    assert shares[0] == {"1": 0.75, "0": 0.25}
    assert shares[1] == pytest.approx({"1": 1.0, "0": 0.119203})
    assert shares[2] == {"0": 0.5, "1": 0.0}, "it is a model that gives logits"
