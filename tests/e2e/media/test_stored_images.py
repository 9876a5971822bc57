"""Large images of stored requests are stored once, and are whole wherever clients or models see them again."""

from __future__ import annotations

import random
import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway
from tests.media_files import data_url
from tests.waiting import wait_until


def noise(width: int, height: int) -> bytes:
    """A PNG that no compression makes small."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    bits = random.Random(7)  # no secret
    rows = b"".join(b"\0" + bits.randbytes(width * 3) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


@pytest.mark.slow
def test_an_image_is_stored_once_and_seen_again(tmp_path: Path) -> None:
    """In a chain, in a conversation, in the background, and in what is listed."""
    url = data_url(noise(150, 100))
    asked = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": url, "detail": "high"},
            ],
        }
    ]
    config: dict[str, Any] = {
        "server": {"store": "sqlite"},
        "stores": {"sqlite": {"path": str(tmp_path / "s.sqlite")}},
        "models": {"m": {"engine": "scripted", "scripted": {"media": ["image"]}}},
    }
    with (
        run_gateway(config, tmp_path) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as http,
    ):

        def post(path: str, **body: Any) -> Any:
            answer = http.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        def images(path: str) -> list[str]:
            include = {"include[]": "message.input_image.image_url"}
            listed = http.get(path, params=include).json()["data"]
            return [
                part["image_url"]
                for item in listed
                if isinstance(item.get("content"), list)
                for part in item["content"]
                if part["type"] == "input_image"
            ]

        def is_over() -> bool:
            state = http.get(f"/responses/{behind['id']}").json()["status"]
            return state not in ("queued", "in_progress")

        first = post("/responses", model="m", input=asked)
        second = post("/responses", model="m", input=asked, previous_response_id=first["id"])
        conversation = post("/conversations")["id"]
        post("/responses", model="m", input=asked, conversation=conversation)
        behind = post(
            "/responses", model="m", input=asked, background=True, previous_response_id=second["id"]
        )
        wait_until(is_over)
        last = http.get(f"/responses/{behind['id']}").json()
        turns = (first, second, last)
        assert all("150x100" in each["output"][0]["content"][0]["text"] for each in turns)
        read = [each["usage"]["input_tokens"] for each in turns]
        assert read[2] - read[1] == read[1] - read[0] >= read[0], "earlier images count"
        assert images(f"/responses/{first['id']}/input_items") == [url]
        assert set(images(f"/responses/{behind['id']}/input_items")) == {url}
        assert images(f"/conversations/{conversation}/items") == [url]
    with closing(sqlite3.connect(tmp_path / "s.sqlite")) as database:
        assert database.execute("SELECT count(*), sum(size) > 60000 FROM parts").fetchone() == (
            1,
            1,
        )
        assert database.execute("SELECT max(size) < 20000 FROM responses").fetchone() == (1,)
