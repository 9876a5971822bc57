"""Helpers of the tests of batches: configurations, files, and waiting for their ends."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

RULES = [
    {"when": "slowly", "pieces": [{"text": "word "}], "repeat": 3000, "delay_ms": 20},
    {"when": "fails", "error": {"status": 500, "message": "It broke."}},
    {"when": "too much", "error": {"status": 429, "message": "Slow down."}},
]
SECONDS = 60.0
"""How long a batch may take, on a machine that has others to serve."""


def configuration(folder: Path, **more: Any) -> dict[str, Any]:
    """A gateway whose files are kept in `folder`, with keys of Ada and Bob."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest()}
        for name in ("ada", "bob")
    ]
    model = {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": RULES}}
    config: dict[str, Any] = {
        "models": {"m": model},
        "server": {"api_keys": keys},
        "resources": {"files": {"path": str(folder)}},
        "apis": {"batches": {}},
    }
    for name, table in more.items():
        config[name] = {**config.get(name, {}), **table}
    return config


def line(custom_id: str, text: str = "hello", *, url: str = "/v1/responses", **body: Any) -> Any:
    """A line of a batch's file."""
    fields: dict[str, Any] = {"model": "m"}
    if url == "/v1/chat/completions":
        fields["messages"] = [{"role": "user", "content": text}]
    elif url == "/v1/completions":
        fields["prompt"] = text
    else:
        fields["input"] = text
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {**fields, **body}}


class Batches:
    """Batches of one client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def upload(self, lines: Iterable[Any] | bytes, **options: Any) -> Any:
        """A file with `lines`."""
        content = lines
        if not isinstance(lines, bytes):
            content = "".join(json.dumps(each) + "\n" for each in lines).encode()
        return self.client.files.create(
            **{"file": ("in.jsonl", content), "purpose": "batch", **options}
        )

    def create(self, lines: Iterable[Any] | bytes, **options: Any) -> Any:
        """A batch of `lines`."""
        given = {"endpoint": "/v1/responses", "completion_window": "24h", **options}
        return self.client.batches.create(input_file_id=self.upload(lines).id, **given)

    def until(self, batch: Any, reached: Callable[[Any], bool], seconds: float = SECONDS) -> Any:
        """The batch, as soon as it fulfils a condition."""
        give_up = time.monotonic() + seconds
        while not reached(batch):
            assert time.monotonic() < give_up, batch
            time.sleep(0.05)
            batch = self.client.batches.retrieve(batch.id)
        return batch

    def ended(self, batch: Any) -> Any:
        """The batch, when it has ended."""
        return self.until(
            batch, lambda now: now.status in ("completed", "failed", "expired", "cancelled")
        )

    def results(self, file_id: str | None) -> list[Mapping[str, Any]]:
        """The lines of an output or errors file."""
        if file_id is None:
            return []
        return [json.loads(each) for each in self.client.files.content(file_id).text.splitlines()]

    def output(self, batch: Any) -> list[Mapping[str, Any]]:
        return self.results(batch.output_file_id)

    def errors(self, batch: Any) -> list[Mapping[str, Any]]:
        return self.results(batch.error_file_id)
