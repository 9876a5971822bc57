"""One key does its worst within its limits, on every route; another key is served all the same."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from websockets.sync.client import connect

from gateway.access.access import hash_key
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

RULES = [{"when": "", "delay_ms": 2, "repeat": 20, "pieces": [{"text": "on "}]}]
WORDS = "some words "
ANTHROPIC = {"anthropic-version": "2023-06-01"}


def key(name: str, **limits: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hash_key(f"sk-{name}"), **limits}


CONFIG: dict[str, Any] = {
    "server": {"api_keys": [key("alice", max_concurrent_requests=2), key("bob")]},
    "models": {
        "m": {"engine": "scripted", "max_running": 8, "scripted": {"rules": RULES}},
        "vectors": {"engine": "scripted", "scripted": {"task": "embed"}},
        "ranks": {"engine": "scripted", "scripted": {"task": "rerank"}},
    },
    "tools": {"file_search": {}},
    "apis": {"batches": {}},
}
Work: TypeAlias = Callable[[], httpx.Response]


class Neighbour:
    """One key's requests on all routes. `size`: how much each asks for."""

    def __init__(self, gateway: RunningGateway, name: str, size: int) -> None:
        self._gateway, self._name, self._size = gateway, name, size
        headers = {"authorization": f"Bearer sk-{name}"}
        self._http = httpx.Client(base_url=gateway.base_url, headers=headers, timeout=120)
        self._file = self._upload(1000).json()["id"]
        self.store = self._post("/vector_stores", {"file_ids": [self._file]}).json()["id"]

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        found = self._http.get(f"/vector_stores/{self.store}").json()
        return bool(found["file_counts"]["completed"])

    def _post(self, path: str, body: Any, headers: Any = None) -> httpx.Response:
        return self._http.post(path, json=body, headers=headers)

    def _upload(self, size: int) -> httpx.Response:
        sent = {"file": ("a.txt", (WORDS * size).encode())}
        return self._http.post("/files", files=sent, data={"purpose": "user_data"})

    def _batch(self) -> httpx.Response:
        body = {"model": "m", "input": WORDS * self._size}
        lines = "\n".join(
            json.dumps(
                {"custom_id": str(n), "method": "POST", "url": "/v1/responses", "body": body}
            )
            for n in range(3)
        )
        sent = {"file": ("a.jsonl", lines.encode())}
        made = self._http.post("/files", files=sent, data={"purpose": "batch"})
        if made.status_code != 200:
            return made
        return self._post(
            "/batches",
            {
                "input_file_id": made.json()["id"],
                "endpoint": "/v1/responses",
                "completion_window": "24h",
            },
        )

    def _socket(self) -> httpx.Response:
        url = self._gateway.base_url.replace("http", "ws") + "/responses"
        headers = {"authorization": f"Bearer sk-{self._name}"}
        with connect(url, additional_headers=headers) as socket:
            body = {"model": "m", "input": WORDS * self._size}
            socket.send(json.dumps({"type": "response.create", **body}))
            while True:
                event = json.loads(socket.recv(120))
                if event["type"] in ("response.completed", "error"):
                    return httpx.Response(event.get("status", 200), json=event)

    def works(self) -> dict[str, Work]:
        """A request of each kind."""
        text, post, size = WORDS * self._size, self._post, self._size
        message = {"role": "user", "content": text}
        messages = [{"role": ("user", "assistant")[n % 2], "content": "x"} for n in range(size)]
        root = self._gateway.base_url.removesuffix("/v1")
        schema = {"type": "object", "properties": {f"p{n}{size}": {} for n in range(size // 10)}}
        structured = {"type": "json_schema", "name": "s", "schema": schema}
        return {
            "responses": lambda: post("/responses", {"model": "m", "input": text}),
            "a schema": lambda: post("/responses/input_tokens", {"model": "m", "input": "x", "text": {"format": structured}}),
            "background": lambda: post("/responses", {"model": "m", "input": text, "background": True}),
            "chat": lambda: post("/chat/completions", {"model": "m", "messages": [*messages, message]}),
            "completions": lambda: post("/completions", {"model": "m", "prompt": text}),
            "embeddings": lambda: post("/embeddings", {"model": "vectors", "input": ["x"] * min(size, 1000)}),
            "rerank": lambda: post("/rerank", {"model": "ranks", "query": "x", "documents": ["y"] * min(size, 500)}),
            "score": lambda: post("/score", {"model": "ranks", "text_1": "x", "text_2": ["y"] * min(size, 500)}),
            "tokenize": lambda: post(f"{root}/tokenize", {"model": "m", "prompt": text}),
            "input_tokens": lambda: post("/responses/input_tokens", {"model": "m", "input": text}),
            "compact": lambda: post("/responses/compact", {"model": "m", "input": text}),
            "files": lambda: self._upload(size),
            "search": lambda: post(f"/vector_stores/{self.store}/search", {"query": [" ".join(f"some{n}" for n in range(48))] * 16}),
            "batches": self._batch,
            "conversations": lambda: post("/conversations", {"items": [message]}),
            "messages": lambda: post("/messages", {"model": "m", "max_tokens": 50, "messages": [message]}, ANTHROPIC),
            "count_tokens": lambda: post("/messages/count_tokens", {"model": "m", "messages": [message]}, ANTHROPIC),
            "websocket": self._socket,
        }  # fmt: skip


@pytest.mark.slow
def test_every_request_of_one_key_is_served_while_another_floods_all_routes(
    tmp_path: Path,
) -> None:
    with (
        run_gateway(CONFIG, tmp_path) as gateway,
        Neighbour(gateway, "alice", 1000) as alice,
        Neighbour(gateway, "bob", 10) as bob,
    ):
        wait_until(lambda: alice.is_ready() and bob.is_ready())
        stop, statuses = threading.Event(), Counter[tuple[str, int]]()
        hers = list(alice.works().items())

        def flood(first: int) -> None:
            for name, work in itertools.islice(itertools.cycle(hers), first, None):
                if stop.is_set():
                    return
                statuses[name, work().status_code] += 1

        threads = [threading.Thread(target=flood, args=(2 * n,)) for n in range(9)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: statuses.total() > 20)
            for name, work in bob.works().items():
                answer = work()
                assert answer.status_code == 200, (name, answer.text)
            assert all(thread.is_alive() for thread in threads), "she has not stopped"
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert {status for _, status in statuses} <= {200, 429}, statuses
        assert {name for name, status in statuses if status == 200}, "some of hers are served too"
        assert any(status == 429 for _, status in statuses), "and her limit is reached"
