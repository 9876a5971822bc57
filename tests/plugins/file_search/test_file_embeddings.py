"""Files are found by what they mean, with vectors of a model that the gateway serves."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.base.errors import ConfigurationError
from gateway_file_search.database import FILE
from gateway_testing.server import run_gateway
from tests.plugins.file_search.filled_stores import filled
from tests.waiting import wait_until

SYNONYMS = [["tall", "height"], ["car", "automobile"], ["big", "large"]]
TEXTS = {
    "tower.md": b"height automobile",
    "river.md": b"water flows downhill",
    "words.md": b"tall stories about nothing in particular whatsoever",
}


def configured(
    folder: Path | str, *, embed: dict[str, Any] | None = None, **tool: Any
) -> dict[str, Any]:
    """A gateway with a model `vectors`, whose scripted keys are `embed`, that file_search uses."""
    search = {"call": {"name": "file_search", "arguments": {"queries": ["tall car"]}}}
    rules = [
        {"when": "find it", "pieces": [search]},
        {"when": "【0:0†tower.md】", "pieces": [{"text": "There 【0:0†tower.md】."}]},
    ]
    return {
        "models": {
            "m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}},
            "vectors": {
                "engine": "scripted",
                "aliases": ["any"],
                "scripted": {"task": "embed", "synonyms": SYNONYMS, **(embed or {})},
            },
        },
        "tools": {"file_search": {"embeddings": "any", **tool}},
        "resources": {"files": {"path": str(folder)}},
    }


def found(client: Any, store: str, query: str | list[str], **more: Any) -> list[str]:
    body = {"query": query, **more}
    answer = client.post(f"/vector_stores/{store}/search", body=body, cast_to=object)
    return [hit["filename"] for hit in answer["data"]]


def rows(folder: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(folder / FILE)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_a_passage_is_found_that_shares_no_word_with_the_query(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    gateway = gateway_server(configured(tmp_path))
    with gateway.client() as client:
        store = filled(client, TEXTS)
        assert found(client, store, "car")[0] == "tower.md"
        only_words = {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}
        assert found(client, store, "tall car", ranking_options=only_words) == ["words.md"]
        only_vectors = {"hybrid_search": {"embedding_weight": 1, "text_weight": 0}}
        assert found(client, store, "tall car", ranking_options=only_vectors)[0] == "tower.md"
        assert set(found(client, store, "tall car")[:2]) == {"words.md", "tower.md"}


def test_a_model_finds_and_cites_by_meaning(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    gateway = gateway_server(configured(tmp_path))
    with gateway.client() as client:
        store = filled(client, TEXTS)
        response = client.responses.create(
            model="m",
            input="find it",
            tools=[
                {
                    "type": "file_search",
                    "vector_store_ids": [store],
                    "ranking_options": {
                        "score_threshold": 0.9,
                        "hybrid_search": {"embedding_weight": 1, "text_weight": 0},
                    },
                    "max_num_results": 1,
                }
            ],
            include=["file_search_call.results"],
        )
        [result] = response.output[0].results
        assert (result.filename, result.score) == ("tower.md", 1.0)
        assert response.output_text == "There."
        assert response.output[1].content[0].annotations[0].filename == "tower.md"


def test_filters_and_deleted_files_hold_for_vectors_too(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    gateway = gateway_server(configured(tmp_path))
    with gateway.client() as client:
        store = filled(client, TEXTS)
        files = {f.filename: f.id for f in client.files.list()}
        client.vector_stores.files.update(
            files["tower.md"], vector_store_id=store, attributes={"kind": "building"}
        )
        other = {"type": "ne", "key": "kind", "value": "building"}
        assert set(found(client, store, "car", filters=other)) == {"river.md", "words.md"}
        client.vector_stores.files.delete(files["tower.md"], vector_store_id=store)
        assert set(found(client, store, "car")) == {"river.md", "words.md"}
        assert rows(tmp_path, "SELECT count(*) FROM vectors") == [(2,)]
        client.vector_stores.delete(store)
        assert rows(tmp_path, "SELECT count(*) FROM vectors") == [(0,)]


@pytest.mark.slow
def test_vectors_are_made_anew_when_the_model_changes_and_only_then(
    gateway_server: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def spaces() -> list[Any]:
        query = "SELECT seq, length(data) FROM spaces JOIN vectors ON space = seq ORDER BY chunk"
        return rows(tmp_path, query)

    caplog.set_level(logging.INFO, "gateway.file_search")
    with gateway_server(configured(tmp_path)).client() as client:
        store = filled(client, TEXTS)
        assert spaces() == [(1, 256)] * 3
        with gateway_server(configured(tmp_path, embed={"delay_ms": 1})).client() as again:
            assert found(again, store, "car")[0] == "tower.md"
            assert rows(tmp_path, "SELECT count(*) FROM spaces") == [(1,)], "it is the same model"
            assert "anew" not in caplog.text
        changed = configured(tmp_path, embed={"dimensions": 8})
        with gateway_server(changed).client() as later:
            wait_until(lambda: spaces() == [(2, 32)] * 3)
            assert found(later, store, "car")[0] == "tower.md"
            assert "the vectors of 3 files are made anew" in caplog.text
            assert client.vector_stores.retrieve(store).file_counts.completed == 3
            # The older server does not make them anew once more: the two would never end.
            filled(client, {"more.md": b"whatever"})
            wait_until(lambda: [space for space, _ in spaces()] == [2, 2, 2, 2])


def test_files_from_before_get_vectors(gateway_server: Callable[..., Any], tmp_path: Path) -> None:
    with gateway_server(configured(tmp_path, embeddings="")).client() as client:
        store = filled(client, TEXTS)
        assert found(client, store, "car") == []
    with gateway_server(configured(tmp_path)).client() as client:
        wait_until(lambda: rows(tmp_path, "SELECT count(*) FROM vectors") == [(3,)])
        assert found(client, store, "car")[0] == "tower.md"


def test_a_query_that_cannot_be_embedded_is_searched_by_its_words(
    gateway_server: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules: list[dict[str, Any]] = [
        {"when": "tall wrong", "error": {"status": 500, "message": "Out of order."}},
        {"when": "tall slow", "delay_ms": 10_000},
    ]
    gateway = gateway_server(configured(tmp_path, embed={"rules": rules}, query_time=2.0))
    with gateway.client() as client:
        store = filled(client, TEXTS)
        assert "tower.md" in found(client, store, "tall")
        for query, reason in (("tall wrong", "Out of order."), ("tall slow", "2 seconds")):
            caplog.clear()
            assert found(client, store, query) == ["words.md"]
            [line] = [each for each in caplog.messages if "could not embed" in each]
            assert "'any'" in line
            assert reason in line


@pytest.mark.slow
def test_a_file_is_in_progress_while_its_model_is_away_and_failed_when_patience_ends(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    gateway = gateway_server(configured(tmp_path, embed={"recover_after": 2}))
    with gateway.client() as client:
        gateway.services.models["vectors"].engine.crash()
        store = client.vector_stores.create()
        added = client.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("a.txt", b"large"), poll_interval_ms=100
        )
        assert added.status == "completed", "it has waited"
        assert found(client, store.id, "big") == ["a.txt"]
    impatient = configured(tmp_path, embed={"recover_after": 60}, embedding_patience=0.1)
    gateway = gateway_server(impatient)
    with gateway.client() as client:
        gateway.services.models["vectors"].engine.crash()
        added = client.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("b.txt", b"large"), poll_interval_ms=100
        )
        assert added.status == "failed"
        assert added.last_error.code == "server_error"
        assert "'any' could not embed the file: The scripted engine has crashed" in added.last_error.message  # fmt: skip
        assert found(client, store.id, "large") == ["a.txt"], "by its words"


def test_a_passage_that_the_model_refuses_is_found_by_its_words(
    gateway_server: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule = {"when": "forbidden", "error": {"status": 400, "message": "I will not."}}
    gateway = gateway_server(configured(tmp_path, embed={"rules": [rule]}))
    with gateway.client() as client:
        store = filled(client, {"a.txt": b"forbidden fruit", "b.txt": b"large fruit"})
        assert set(found(client, store, "fruit")) == {"a.txt", "b.txt"}
        assert found(client, store, "big") == ["b.txt"]
        assert "found by its words alone: I will not." in caplog.text


def test_a_batch_that_is_cancelled_while_its_vectors_are_made_leaves_nothing(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    rule = {"when": "large file", "delay_ms": 2_000}
    gateway = gateway_server(configured(tmp_path, embed={"rules": [rule]}))
    engine = gateway.services.models["vectors"].engine
    with gateway.client() as client:
        store = client.vector_stores.create()
        files = [client.files.create(file=(f"{n}.txt", b"large file"), purpose="user_data").id for n in range(3)]  # fmt: skip
        batch = client.vector_stores.file_batches.create(store.id, file_ids=files)
        wait_until(lambda: len(engine.running) == 2)
        assert client.vector_stores.retrieve(store.id).status == "in_progress"
        cancelled = client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id)
        assert (cancelled.status, cancelled.file_counts.cancelled) == ("cancelled", 3)
        wait_until(lambda: not engine.running)
        later = filled(client, {"b.txt": b"big"})
        for table in ("chunks", "vectors"):
            assert rows(tmp_path, f"SELECT count(*) FROM {table}") == [(1,)], table
        assert found(client, store.id, "large") == []
        assert found(client, later, "large") == ["b.txt"]


def test_a_stop_leaves_vectors_that_are_being_made_to_the_next_start(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    slow = configured(tmp_path, embed={"rules": [{"when": "large", "delay_ms": 600_000}]})
    slow["server"] = {"grace_period": 60}
    with run_gateway(slow, tmp_path) as gateway, gateway.client() as client:
        store = client.vector_stores.create()
        added = client.files.create(file=("a.txt", b"large"), purpose="user_data")
        client.vector_stores.files.create(store.id, file_id=added.id)
        wait_until(lambda: len(gateway.services.models["vectors"].engine.running) == 1)
        stopped = time.monotonic()
    assert time.monotonic() - stopped < gateway.services.config.server.grace_period, "at once"
    assert rows(tmp_path, "SELECT status, lease, attempts FROM store_files") == [("in_progress", 0, 0)]  # fmt: skip
    with gateway_server(configured(tmp_path)).client() as client:
        client.vector_stores.files.poll(added.id, vector_store_id=store.id)
        assert found(client, store.id, "big") == ["a.txt"]


def test_long_files_get_a_vector_for_each_chunk_in_batches(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    """Chunks that are longer than the model's longest input are embedded in parts."""
    config = configured(tmp_path, embedding_batch=2)
    config["models"]["vectors"]["max_model_len"] = 64
    with gateway_server(config).client() as client:
        text = " ".join(f"word{n}" for n in range(1500)) + " large"
        store = filled(client, {"a.txt": text.encode(), "b.txt": b"other"})
        [[chunks]] = rows(tmp_path, "SELECT count(*) FROM chunks")
        assert rows(tmp_path, "SELECT count(*), min(length(data)) FROM vectors") == [(chunks, 256)]
        assert chunks > 5
        assert found(client, store, "word3 word4 word5")[0] == "a.txt"


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"score_threshold": 1.5}, "score_threshold"),
        ({"ranker": "best"}, "ranker"),
        ({"hybrid_search": {"embedding_weight": -1, "text_weight": 1}}, "hybrid_search.embedding_weight"),
        ({"hybrid_search": {"embedding_weight": 0, "text_weight": 0}}, "hybrid_search"),
        ({"hybrid_search": {"embedding_weight": 1}}, "hybrid_search.text_weight"),
    ],
)  # fmt: skip
def test_wrong_ranking_options_are_refused(ada: Any, towers: str, options: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as searched:
        found(ada, towers, "x", ranking_options=options)
    assert searched.value.param == f"ranking_options.{param}"
    entry = {"type": "file_search", "vector_store_ids": [towers], "ranking_options": options}
    with pytest.raises(openai.BadRequestError) as asked:
        ada.responses.create(model="qwen3", input="hi", tools=[entry])
    assert asked.value.param == f"tools[0].ranking_options.{param}"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing", "no model 'nothing' is configured; models that embed: vectors"),
        ("m", "the model 'm' does not embed; models that do: vectors"),
    ],
)
def test_a_model_that_cannot_embed_is_a_mistake_at_the_start(
    gateway_server: Callable[..., Any], tmp_path: Path, name: str, sentence: str
) -> None:
    config = configured(tmp_path, embeddings=name)
    config["models"]["m"]["scripted"]["task"] = "generate"
    with pytest.raises(ConfigurationError, match=rf"tools\.file_search\.embeddings: {sentence}"):
        gateway_server(config)


def test_llama_cpp_embeds_files_and_queries(
    gateway_server: Callable[..., Any], tmp_path: Path
) -> None:
    """A real model's vectors: the passage that is the query itself has the same one, whatever its words count for."""
    config = configured(tmp_path, embedding_batch=3)
    config["models"]["vectors"] = {
        "engine": "llamacpp",
        "aliases": ["any"],
        "llamacpp": {"task": "embed", "pooling": "mean", "n_ctx": 256, "n_parallel": 2},
    }
    texts = {
        "france.txt": b"What is the capital of France?",
        "greeting.txt": b"Hello! How are you today?",
        "long.txt": b"Numbers: " + b" ".join(b"%d" % n for n in range(700)),
    }
    with gateway_server(config).client() as client:
        store = filled(client, texts)
        only_vectors = {"hybrid_search": {"embedding_weight": 1, "text_weight": 0}}
        for name in ("france.txt", "greeting.txt"):
            query = texts[name].decode()
            assert found(client, store, query, ranking_options=only_vectors)[0] == name
        [[chunks]] = rows(tmp_path, "SELECT count(*) FROM chunks")
        assert rows(tmp_path, "SELECT count(*), max(length(data)) FROM vectors") == [(chunks, 640)]
